"""`logs -f` of eight ranks with much output and very long lines, across a coordinator restart: every byte arrives."""

import os
import subprocess
import time
import unittest

from tests.support.cluster import Cluster, command_spec, wait_until

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
                "chatty", "/usr/bin/python3", str(script), nodes=NODES, ranks=RANKS_PER_NODE,
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
            # The output of a single rank has no prefix and no added newline.
            alone = subprocess.run(cluster.command("logs", job, "--rank", "3"), env=cluster.client_env(),
                                   stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout
            self.assertTrue(alone == files[3, "stdout"] + files[3, "stderr"], f"{len(alone)} bytes")
            return written / (over - started)


class LogsTest(Following):
    def test_follow_survives_coordinator_death(self):
        """10,000 lines/s in total."""
        self.follow(1250, 12)


class LogsLongTest(Following):
    def test_ten_thousand_lines_per_second_per_rank(self):
        self.follow(10_000, 20)


if __name__ == "__main__":
    unittest.main()
