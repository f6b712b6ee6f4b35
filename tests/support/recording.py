"""Recordings: commands with their output, as a terminal shows them after a prompt.

    # A comment.
    $ muster run -- ./train.sh
    @ once "step 3" type "^C"
    train-x7k2q
    …

`> ` continues a command. A line with `@` waits until a text has appeared, even briefly, while the command runs, and gives
what the user then types: `^C` is Ctrl-C, `⏎` is Enter; `@ once "step 3"` alone only waits.
The exit status of a command that fails is its last line of output, as in `exit status 2`.
"""

import re

from tests.support.page import Step

_KEYS = re.compile(r'@ once "(?P<text>[^"]*)"(?: type "(?P<keys>[^"]*)")?')


def _prints_status(commands):
    return f"{{ {commands}\n}} || echo \"exit status $?\"\n"


def steps(text):
    """Raises ValueError for a line whose purpose is unclear."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        keys = _KEYS.fullmatch(line)
        if line.startswith("# "):
            continue
        if line.startswith("$ "):
            found.append(Step(number, line[2:], ""))
        elif not found:
            if line:
                raise ValueError(f"line {number}: output before the first command")
        elif line.startswith("> ") and not found[-1].output:
            found[-1].commands += f"\n{line[2:]}"
        elif keys:
            found[-1].keys.append((keys["text"], (keys["keys"] or "").replace("^C", "\x03").replace("⏎", "\n")))
        elif line.startswith("@"):
            raise ValueError(f'line {number}: expected @ once "TEXT" type "KEYS" or @ once "TEXT"')
        else:
            found[-1].output += f"{line}\n"
    for step in found:
        step.commands = _prints_status(step.commands)
        step.output = step.output.rstrip("\n") + "\n" if step.output.strip() else ""
    return found
