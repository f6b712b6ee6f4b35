"""What is kept of logs: the newest output up to --rank-log-bytes, and, at the coordinator, the end of each finished log."""

import shutil
import unittest

from tests.support.cluster import Cluster, shell_spec, wait_until

KEPT_END_BYTES = 16 << 10
LIMIT_BYTES = 2 << 20


class KeptEndTest(unittest.TestCase):
    def check_end(self, result, first, last, why):
        """The output consists of numbers up to `last`, of which the oldest are missing."""
        self.assertEqual(result.returncode, 0, result.stderr)
        numbers = [int(line) for line in result.stdout.splitlines()]
        self.assertEqual(numbers, list(range(numbers[0], last + 1)))
        self.assertGreater(numbers[0], first)
        self.assertLessEqual(len(result.stdout), KEPT_END_BYTES)
        self.assertGreater(len(result.stdout), KEPT_END_BYTES - 100)
        self.assertIn(f"{why}; the coordinator kept only the last 16KiB of each log", result.stderr)

    def test_end_of_a_log_outlives_its_node(self):
        with Cluster(nodes=2) as cluster:
            # Rank 1 fails once rank 0 has written everything: the other ranks of a failed job are stopped.
            written = cluster.directory / "written"
            job = cluster.submit(shell_spec(
                "writes", f"seq 20000; if [ $RANK = 0 ]; then touch {written}; else until [ -e {written} ]; do sleep 0.05; "
                "done; fi; echo failed on $RANK >&2; exit $RANK", nodes=2, output="separate"))
            self.assertEqual(cluster.wait(job, check=False)["state"], "FAILED")
            logs = ("logs", job, "--rank", "1")
            self.assertEqual(cluster.muster(*logs, "--stream", "stdout").stdout.count("\n"), 20000)
            cluster.workers.pop("node-2").stop()
            shutil.rmtree(cluster.directory / "node-2")
            gone = "node node-2 is not connected"
            self.check_end(cluster.muster(*logs, "--stream", "stdout"), 1, 20000, gone)
            tail = cluster.muster(*logs, "--tail", "2", "--timestamps")
            self.assertRegex(tail.stdout, r"(?s)^\S+Z 20000\n\S+Z failed on 1\n$")
            # The coordinator stores it; the node may be removed.
            cluster.coordinator.kill()
            cluster.start_coordinator()
            cluster.wait_for_nodes(1)
            cluster.muster("node", "remove", "node-2")
            self.check_end(cluster.muster(*logs, "--stream", "stdout", "-f"), 1, 20000, gone)
            self.assertEqual(cluster.muster("logs", job, "--rank", "0", "--stream", "stdout").stdout.count("\n"), 20000)
            # A node that returns without the log.
            cluster.start_worker("node-2")
            cluster.wait_for_nodes(2)
            self.check_end(cluster.muster(*logs, "--stream", "stdout"), 1, 20000, "node node-2 no longer has the log")
            cluster.muster("rm", job)


class LimitTest(unittest.TestCase):
    def test_oldest_output_is_dropped(self):
        with Cluster(nodes=1, worker_flags=["--rank-log-bytes=2MiB"]) as cluster:
            go = cluster.directory / "go"
            job = cluster.submit(shell_spec("writes", f"seq 1000000; while ! test -e {go}; do sleep 0.1; done; seq 3"))
            log = cluster.directory / f"node-1/jobs/{job}/logs/generation-1/rank-0000.stdout"
            wait_until(lambda: log.exists() and log.stat().st_size == 6888896, 60, "the first million lines")
            follower = cluster.popen("logs", job, "-f")
            go.touch()
            self.assertEqual(cluster.wait(job)["state"], "SUCCEEDED")
            out, err = follower.communicate(timeout=60)
            self.assertEqual(follower.returncode, 0, err)
            self.assertLessEqual(log.stat().st_blocks * 512, LIMIT_BYTES)
            later = cluster.muster("logs", job)
            for text, notice in ((out, err), (later.stdout, later.stderr)):
                numbers = [int(line) for line in text.splitlines()]
                self.assertEqual(numbers, [*range(numbers[0], 1000001), 1, 2, 3])
                self.assertGreater(len(text), LIMIT_BYTES / 2)
                dropped = sum(len(f"{n}\n") for n in range(1, numbers[0]))
                self.assertIn(f"rank 0, stdout: the first {dropped} bytes were dropped (limit of each log: 2MiB, "
                              "--rank-log-bytes of the worker)", notice)
            self.assertEqual(cluster.muster("logs", job, "--tail", "4").stdout, "1000000\n1\n2\n3\n")


class ManyRanksTest(unittest.TestCase):
    def test_logs_of_many_ranks(self):
        """A job of 256 ranks has as many logs as one caller may read at the same time."""
        with Cluster(nodes=1, slots=256) as cluster:
            job = cluster.submit(shell_spec("many", "echo out $RANK; echo err $RANK >&2", ranks=256))
            self.assertEqual(cluster.wait(job, timeout=300)["state"], "SUCCEEDED")
            for flags in ((), ("-f",)):
                # On a slow machine the workers also note what the ranks wait for.
                lines = [line for line in cluster.muster("logs", job, *flags).stdout.splitlines()
                         if "| muster: " not in line]
                self.assertEqual(sorted(lines), sorted(f"{r}| {s} {r}" for r in range(256) for s in ("out", "err")))


if __name__ == "__main__":
    unittest.main()
