"""Logs: every byte arrives through a coordinator restart; lines are merged by time; progress bars are live."""

import os
import subprocess
import time
import unittest

from tests.support.cluster import Cluster, command_spec, parse_time, wait_until
from tests.support.terminal import Terminal

NODES, RANKS_PER_NODE = 2, 4
LONG_LINE_BYTES = 1 << 20

# Each rank writes LINES lines per second for SECONDS seconds, one in sixteen to stderr, and once
# per second a line of 1 MiB to each. Lines start with their stream ("o" or "e") and are all
# different, so that losses and repetitions are detected.
WRITER = f"""
import os, time
lines, seconds, rank = int(os.environ["LINES"]), int(os.environ["SECONDS"]), os.environ["RANK"]
turns = 50
start = time.monotonic()
written = 0
for turn in range(seconds * turns):
    time.sleep(max(0, start + turn / turns - time.monotonic()))
    out, err = [], []
    for _ in range(lines // turns):
        written += 1
        (err if written % 16 == 0 else out).append(written)
    if turn % turns == turns // 2:
        os.write(1, b"o" + str(turn).encode() + b"x" * {LONG_LINE_BYTES} + b"\\n")
        os.write(2, b"e" + str(turn).encode() + b"y" * {LONG_LINE_BYTES} + b"\\n")
    for fd, name, numbers in ((1, "o", out), (2, "e", err)):
        data = "".join(f"{{name}} {{rank}} line {{n}} of what a program prints while it trains\\n"
                       for n in numbers).encode()
        while data:
            data = data[os.write(fd, data):]
print(f"o {{written}} lines, late by {{time.monotonic() - start - seconds:.1f}} s")
os.write(1, b"o the end, without a newline")
"""


class Following(unittest.TestCase):
    def log_files(self, cluster, job):
        """{(rank, stream): bytes} of the log files on the nodes."""
        files = {}
        for rank in range(NODES * RANKS_PER_NODE):
            node = f"node-{rank // RANKS_PER_NODE + 1}"
            for stream in ("stdout", "stderr"):
                path = cluster.directory / node / f"jobs/{job}/logs/generation-1/rank-{rank:04}.{stream}"
                files[rank, stream] = path.read_bytes()
        return files

    def follow_to_file(self, cluster, job, path):
        with open(path, "wb") as out, open(f"{path}.err", "wb") as err:
            return subprocess.Popen(cluster.command("logs", job, "-f"), env=cluster.client_env(),
                                    stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def check_equal(self, path, files):
        """Checks that the followed output, split by its prefixes, equals the bytes of each file."""
        received = {key: [] for key in files}
        with open(path, "rb") as lines:
            for line in lines:
                rank, _, text = line.partition(b"| ")
                self.assertTrue(rank.isdigit(), line[:80])
                received[int(rank), "stdout" if text.startswith(b"o") else "stderr"].append(text)
        for key, expected in files.items():
            if expected and not expected.endswith(b"\n"):
                expected += b"\n"  # output of several ranks consists of whole lines
            got = b"".join(received[key])
            if got != expected:  # not assertEqual, which would print megabytes
                same = os.path.commonprefix([got, expected])
                self.fail(f"rank {key[0]} {key[1]}: {len(got)} bytes instead of {len(expected)}; they differ from "
                          f"byte {len(same)}: {got[len(same):][:80]!r} instead of {expected[len(same):][:80]!r}")

    def follow(self, lines_per_rank, seconds):
        with Cluster(nodes=NODES, slots=RANKS_PER_NODE) as cluster:
            script = cluster.directory / "writer.py"
            script.write_text(WRITER)
            job = cluster.submit(command_spec(
                "chatty", "/usr/bin/python3", str(script), nodes=NODES, ranks=RANKS_PER_NODE, output="separate",
                env={"LINES": str(lines_per_rank), "SECONDS": str(seconds)}))
            out = cluster.directory / "followed"
            follower = self.follow_to_file(cluster, job, out)
            started = time.monotonic()
            wait_until(lambda: out.stat().st_size > 4 * LONG_LINE_BYTES, 60, "the first lines at the reader")
            cluster.coordinator.kill()
            size = out.stat().st_size
            cluster.start_coordinator()
            wait_until(lambda: out.stat().st_size > size + 4 * LONG_LINE_BYTES, 60, "lines after the restart")
            self.assertEqual(cluster.get(job)["state"], "RUNNING")  # the job is still running
            finished = cluster.wait(job)
            over = time.monotonic()
            self.assertEqual(finished["state"], "SUCCEEDED", finished)
            self.assertEqual(follower.wait(60), 0, (cluster.directory / "followed.err").read_text())
            files = self.log_files(cluster, job)
            written = sum(data.count(b"\n") for data in files.values())
            size = sum(map(len, files.values()))
            print(f"{written} lines and {size / 1e6:.0f} MB of {len(files) // 2} ranks in {over - started:.1f} s: "
                  f"{written / (over - started):.0f} lines/s, {size / 1e6 / (over - started):.0f} MB/s; "
                  f"the reader was done {time.monotonic() - over:.1f} s after the job")
            self.assertEqual(written, NODES * RANKS_PER_NODE * (lines_per_rank * seconds + 2 * seconds + 1))
            self.check_equal(out, files)
            # A single log has no prefix and no added newline.
            for stream in ("stdout", "stderr"):
                alone = subprocess.run(cluster.command("logs", job, "--rank", "3", "--stream", stream),
                                       env=cluster.client_env(), stdin=subprocess.DEVNULL, capture_output=True,
                                       check=True).stdout
                self.assertTrue(alone == files[3, stream], f"{len(alone)} bytes")
            return written / (over - started)


class LogsTest(Following):
    def test_follow_survives_coordinator_death(self):
        """10,000 lines/s in total."""
        self.follow(1250, 12)


LINES = 12

# Two ranks write a line in turn, every second pair to stderr. A rank waits until the file with the
# number of its line exists, and then until its shim has read the line.
IN_TURN = f"""
import os, pathlib, sys, time
turns, rank = pathlib.Path(os.environ["TURNS"]), int(os.environ["RANK"])
for line in range(rank, {LINES}, 2):
    while line > 0 and not (turns / str(line)).exists():
        time.sleep(0.01)
    print("line", line, file=sys.stderr if line // 2 % 2 else sys.stdout, flush=True)
    time.sleep(0.2)
    (turns / str(line + 1)).touch()
"""

# A progress bar in the manner of tqdm, redrawn until the file GO exists, and then finished.
PROGRESS_BAR = """
import os, sys, time
step = 0
print("begins", file=sys.stderr, flush=True)
while not os.path.exists(os.environ["GO"]):
    step += 1
    sys.stderr.write(f"\\r{step} steps |###   |")
    sys.stderr.flush()
    time.sleep(0.05)
sys.stderr.write("\\rall steps |######|\\n")
"""


class LogOrderTest(unittest.TestCase):
    """Logs of a finished job of two ranks."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=2, slots=1))
        script = cls.cluster.directory / "in_turn.py"
        script.write_text(IN_TURN)
        turns = cls.cluster.directory / "turns"
        turns.mkdir()
        cls.job = cls.cluster.submit(command_spec("in-turn", "/usr/bin/python3", str(script), nodes=2,
                                                  output="separate", env={"TURNS": str(turns)}))
        cls.finished = cls.cluster.wait(cls.job)

    def logs(self, *args):
        return self.cluster.muster("logs", self.job, *args).stdout.splitlines()

    def lines(self, first):
        return [f"{n % 2}| line {n}" for n in range(first, LINES)]

    def test_ranks_and_streams_are_merged_by_time(self):
        self.assertEqual(self.logs(), self.lines(0))
        self.assertEqual(self.logs("-f"), self.lines(0))

    def test_timestamps_are_those_of_the_program(self):
        for args in ((), ("-f",)):
            lines = [line.split(" ", 1) for line in self.logs("--timestamps", *args)]
            self.assertEqual([text for _, text in lines], self.lines(0))
            times = [parse_time(time) for time, _ in lines]
            self.assertEqual(times, sorted(set(times)))
            self.assertGreaterEqual(times[0], parse_time(self.finished["start_time"]) - 0.001)
            self.assertLessEqual(times[-1], parse_time(self.finished["finish_time"]))

    def test_since(self):
        times = [line.split(" ", 1)[0] for line in self.logs("--timestamps")]
        self.assertEqual(self.logs("--since", times[5]), self.lines(5))
        self.assertEqual(self.logs("--since", times[5], "--tail", "2"), self.lines(LINES - 2))
        self.assertEqual(self.logs("-f", "--since", times[5]), self.lines(5))
        self.assertEqual(self.logs("--since", "1h"), self.lines(0))
        self.assertEqual(self.logs("--since", "2099-01-01T00:00:00Z"), [])
        refused = self.cluster.muster("logs", self.job, "--since", "yesterday", check=False)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("neither a duration such as 10m nor a time", refused.stderr)

    def test_tail_counts_all_ranks_and_streams(self):
        self.assertEqual(self.logs("--tail", "3"), self.lines(LINES - 3))
        self.assertEqual(self.logs("--tail", "3", "-f"), self.lines(LINES - 3))
        self.assertEqual(self.logs("--tail-per-rank", "2"), self.lines(LINES - 4))
        self.assertEqual(self.logs("--stream", "stderr", "--tail", "1"), [f"1| line {LINES - 1}"])

    def test_log_without_an_index(self):
        """A log that an older worker wrote has no times."""
        for index in self.cluster.directory.glob(f"node-*/jobs/{self.job}/logs/generation-1/*.times"):
            self.addCleanup(index.with_suffix(".hidden").rename, index)
            index.rename(index.with_suffix(".hidden"))
        self.assertEqual(sorted(self.logs()), sorted(self.lines(0)))
        self.assertEqual({line.split(" ", 1)[0] for line in self.logs("--timestamps")}, {"-"})


class ProgressBarTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=1, slots=2))
        cls.script = cls.cluster.directory / "progress_bar.py"
        cls.script.write_text(PROGRESS_BAR)

    def spec(self, name, ranks):
        self.go = self.cluster.directory / f"{name}.go"
        return command_spec(name, "/usr/bin/python3", str(self.script), ranks=ranks, env={"GO": str(self.go)})

    def terminal(self, *args):
        return Terminal(self.cluster.command(*args), dict(self.cluster.client_env(), TERM="xterm"))

    def test_one_rank_is_redrawn_while_it_runs(self):
        job = self.cluster.submit(self.spec("one", 1))
        terminal = self.terminal("logs", job, "-f")
        terminal.wait_for("begins")
        terminal.wait_for("\r5 steps |###   |")
        terminal.wait_for("\r25 steps |###   |")
        self.assertNotIn("\n", terminal.shown)
        self.go.touch()
        terminal.wait_for("\rall steps |######|")
        self.assertEqual(terminal.exit_status(), 0)

    def test_several_ranks_share_the_last_line(self):
        job = self.cluster.submit(self.spec("several", 2))
        terminal = self.terminal("logs", job, "-f")
        for rank in (0, 1, 0, 1):
            terminal.wait_for(f"\r\x1b[K{rank}| ")
            terminal.wait_for(" steps |###   |")
        self.go.touch()
        terminal.wait_for("| all steps |######|\r\n")
        terminal.wait_for("| all steps |######|\r\n")
        self.assertEqual(terminal.exit_status(), 0)

    def test_run_redraws_while_the_job_runs(self):
        terminal = self.terminal("run", self.cluster.write_spec(self.spec("run", 1)))
        terminal.wait_for("\r10 steps |###   |")
        self.go.touch()
        terminal.wait_for("\rall steps |######|")
        self.assertEqual(terminal.exit_status(), 0)

    def test_file_is_not_flooded(self):
        job = self.cluster.submit(self.spec("file", 1))
        out = self.cluster.directory / "file.out"
        with open(out, "wb") as file:
            began = time.monotonic()
            follower = subprocess.Popen(self.cluster.command("logs", job, "-f"), env=self.cluster.client_env(),
                                        stdin=subprocess.DEVNULL, stdout=file)
        wait_until(lambda: out.read_text().count(" steps |###") >= 2, 30, "two states in the file")
        self.go.touch()
        self.assertEqual(follower.wait(30), 0)
        lines = out.read_text().splitlines()
        self.assertEqual([lines[0], lines[-1]], ["begins", "all steps |######|"])
        self.assertLessEqual(len(lines) - 2, time.monotonic() - began + 2)
        self.assertRegex("\n".join(lines[1:-1]), r"^(\d+ steps \|###   \|\n?)+$")


class LogsLongTest(Following):
    def test_ten_thousand_lines_per_second_per_rank(self):
        self.follow(10_000, 20)


if __name__ == "__main__":
    unittest.main()
