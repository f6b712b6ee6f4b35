"""Compares the output that a page or recording shows with the real output of the same commands.

Both are normalised: what differs from run to run (ids, times, rates, ports, losses) is replaced by a placeholder, and
what remains must be equal. In the shown output, `…` matches any text within a line, or, alone in a line, any lines.

Pages show output as it is without a terminal, where progress is printed occasionally. On a terminal, progress is one
line that is redrawn and finally erased: the real output may not contain any.
"""

import difflib
import re

ANY = "…"

# (pattern, replacement), applied in this order to each line.
_VOLATILE = [(re.compile(pattern), replacement) for pattern, replacement in (
    (r"^((?:\d+\| )?)[IWE]\d{8} [\d:.]+ +\d+ ([\w.]+):\d+\]", r"\1LOG \2]"),
    (r"(?:/[\w.-]+)*/muster-sandbox\.\w{8}/home\b", "~"),
    (r"(?:/[\w.-]+)*/(?:tmp\.\w{10}|muster-local\.\w{6})\b", "DIR"),
    # Fixed ports are those of the coordinator; all others are assigned by the system.
    (r"\b(127\.0\.0\.1\]?):(?!707[01]\b)\d+", r"\1:PORT"),
    (r"\bMASTER_PORT=\d+", "MASTER_PORT=PORT"),
    # Depends on the number of cores.
    (r"\bOMP_NUM_THREADS=\d+", "OMP_NUM_THREADS=N"),
    # A job id: the name and five letters or digits.
    (r"\b([a-z][a-z0-9-]*)-[a-z0-9]{5}(?![\w-])", r"\1-ID"),
    (r"\b[0-9a-f]{64}\b", "DIGEST"),
    (r"\b\d[\d,]* images/s", "N images/s"),
    (r"\b\d+(?:\.\d+)? [KMGT]iB\b", "SIZE"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}", "DATE"),
    (r"\b\d{4}-\d\d-\d\dT[\d:.]+Z\b", "DATE"),
    (r"\b(?:\d+[dhm])*\d+(?:\.\d+)? ?(?:ms|[dhms])\b", "TIME"),
    (r"(?<![\d.])\d+\.\d+(?![\d.])", "#"),
    (r"\b\d+ %", "N %"),
    # A step, of a fixed number of steps.
    (r"\b\d+/(\d+)", r"N/\1"),
    (r"\b(checkpoint|state) of step \d+", r"\1 of step N"),
    (r"\bstep-\d{8}\b", "step-N"),
    (r"\bpid \d+", "pid N"),
    # Tables: a node's CPUs and memory after its kinds of slots; a rank's PID and STEP after its PHASE.
    (r"\b(\d+ cpu) +\d+ +SIZE", r"\1 N SIZE"),
    (r"\b(STARTED|JOINED|CONNECTED) +\d+ +(?:\d+|-) ", r"\1 N N "),
    (r" +", " "),
)]

# Progress, as `run` and `local` print it without a terminal.
_PROGRESS = re.compile(
    r"loading-data|connecting|training|checkpointing|evaluating|finished"
    r"|(?:(?:checkpointing|evaluating|finished)(?:: [\d,]+(?: of [\d,]+)? [a-z ]+)? )?"
    r"step N/\d+(?: epoch #/(?:\d+|#))?(?: loss #)?"
    r"(?: accuracy #)?(?: N images/s)?(?: TIME left)?")

# Normalised lines that Muster prints or not, depending on what it sees when it looks, and how often.
_OPTIONAL = re.compile("|".join((
    r"queued: position 1, .*",
    r"(?:starting|running): generation \d",
    r"stopping",
    # Of `describe`: only causes that took some time.
    r"(?:Time by cause:)? TIME # % [a-z ]+(?:node-\d)?",
    # Of `describe` and `events`: the machine may be slow for a while.
    r"TIME \d+ Straggler(?:Found|Ended) .*",
    # Of `why`.
    rf"Progress: (?:{_PROGRESS.pattern})",
    # mpirun, if the agent that it starts runs before mpirun has moved it to a process group of its own.
    r"0\| \[\S+\] plm:rsh: Warning: setpgid\(\S+\) failed in parent with errno=.*",
    # A rank that lost its peer may be stopped before it reports that.
    r"0\| RuntimeError: \[\S*gloo/transport/tcp/pair\.cc:\d+\] .*",
)))

# What bash prints on a terminal about its background jobs.
_BACKGROUND_JOB = re.compile(r"\[\d+\][-+]? .*")

# Lines that have several forms, depending on timing: (pattern, replacement).
_ALTERNATIVES = [(re.compile(pattern), replacement) for pattern, replacement in (
    # `muster list`: the phase of a job before its first step.
    (r"(\S+ RUNNING \d+ \d+) (?:N/\d+|loading-data|connecting|training|-) (\d+ TIME TIME)", r"\1 STEP \2"),
    # `muster why`.
    (r"(?:(?:No rank is behind: all are at collective \d+ and step \d+|Its ranks report no collectives or steps)\. "
     r"Oldest report: rank \d on node-\d, pid N, "
     r"|Slowest: rank \d on node-\d, pid N: "
     r"it (?:has finished \d+ collectives?, others \d+|is at step \d+, others at \d+); )"
     r"last report TIME ago\.", "(the slowest rank)"),
)]


def normalise(line):
    line = line.rstrip()
    for pattern, replacement in _VOLATILE:
        line = pattern.sub(replacement, line)
    for pattern, replacement in _ALTERNATIVES:
        line = pattern.sub(replacement, line) if pattern.fullmatch(line) else line
    return line


def _lines(text, *ignored):
    lines = [line for line in map(normalise, text.splitlines()) if not any(kind.fullmatch(line) for kind in ignored)]
    # A job's progress is printed once or several times, depending on when it is seen.
    return [line for line, following in zip(lines, lines[1:] + [""])
            if not (re.fullmatch(r"N/\d+ steps", line) and following.startswith(line))]


def _stream(line):
    """Lines of one stream are in order; streams are interleaved in any order."""
    rank = re.match(r"\d+\| ", line)
    if rank:
        return rank[0]
    # Each daemon prints its own.
    listening = re.match(r"listening .*", line)
    return listening[0] if listening else ""


def _pattern(lines):
    return "".join(r"(?:.*\n)*" if line == ANY else ".*".join(map(re.escape, line.split(ANY))) + r"\n"
                   for line in lines)


def difference(shown, real, terminal=False):
    """Empty if the real output is what is shown; otherwise a text that shows the difference."""
    expected = _lines(shown, _OPTIONAL, _PROGRESS)
    actual = _lines(real, _OPTIONAL, _BACKGROUND_JOB if terminal else _PROGRESS)
    for stream in sorted({_stream(line) for line in expected + actual}):
        pattern = _pattern([line for line in expected if line == ANY or _stream(line) == stream])
        text = "".join(f"{line}\n" for line in actual if _stream(line) == stream)
        if not re.fullmatch(pattern, text):
            return "\n".join(["the expected (-) and the real output (+) differ:",
                              *difflib.ndiff(expected, actual), "real output:", real])
    return ""
