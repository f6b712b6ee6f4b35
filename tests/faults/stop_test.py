"""SIGSTOP of each kind of process: short pauses are tolerated, and processes that are silent too long are lost."""

import os
import signal
import time
import unittest

from tests.support.cluster import Cluster, shell_spec, training_spec, wait_until

LEASE = 4
SHORT, LONG = 1.5, 6  # more than a heartbeat and less than the leases; more than the leases
FLAGS = ["--lease=3s", f"--job-lease={LEASE}s", "--heartbeat-interval=300ms"]


class Stopped:
    """Context manager that stops a process for at least `seconds`."""

    def __init__(self, pid, seconds):
        self.pid, self.seconds = pid, seconds

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        self._since = time.monotonic()
        return self

    def over(self):
        return time.monotonic() - self._since > self.seconds

    def __exit__(self, kind, *unused):
        if kind is None:
            wait_until(self.over, self.seconds + 1, "the stop to be over")
        try:
            os.kill(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


class StopTest(unittest.TestCase):
    def start(self, **top):
        """Start two long-running jobs, each with a rank on both nodes."""
        self.cluster = self.enterContext(Cluster(nodes=2, slots=2, coordinator_flags=FLAGS))
        top = {"failure_timeout": f"{LEASE}s", **top}
        self.command = self.cluster.submit(shell_spec("command", "exec sleep 1000", nodes=2, restart={"max": 3},
                                                      failure_timeout=f"{LEASE}s"))
        self.train = self.cluster.submit(training_spec(
            "train", max_steps=1000000, resources={"nodes": 2, "ranks_per_node": 1}, restart={"max": 3},
            grace_period="1s", **top))
        self.cluster.wait_for_state(self.command, "RUNNING")
        self.cluster.wait_for_step(self.train, 20)
        self.addCleanup(self.finish)

    def finish(self):
        for job in (self.train, self.command):
            self.cluster.muster("cancel", job, "--grace", "500ms")
            self.assertEqual(self.cluster.wait(job, check=False)["state"], "CANCELLED")

    def step(self):
        return int(self.cluster.get(self.train).get("progress", {}).get("step", 0))

    def check_continues(self, generation=1, jobs=("command", "train")):
        """Check that the jobs are in `generation`, without a failure if it is the first, and that training advances."""
        for name in jobs:
            job = self.cluster.get(getattr(self, name))
            self.assertEqual((job["state"], int(job["generation"])), ("RUNNING", generation), job)
            self.assertEqual("first_failure" in job, generation > 1, job)
        step = self.step()
        wait_until(lambda: self.step() > step + 20, 20, "more steps")

    def nodes(self):
        return {n["name"]: n["state"] for n in self.cluster.nodes()}

    def test_tolerates_short_pause_of_rank(self):
        self.start()
        with Stopped(self.cluster.rank_pids("node-2")[0], SHORT):
            time.sleep(0.5)  # the last word of it is on its way until then
            step = self.step()
        self.assertLessEqual(self.step(), step + 5)
        self.assertEqual(self.nodes(), {"node-1": "READY", "node-2": "READY"})
        self.check_continues()

    def test_replaces_rank_paused_beyond_failure_timeout(self):
        """It counts as hung: it is named in the first failure, killed although it handles no signals, and replaced."""
        self.start(failure_timeout="4s")
        hung = self.cluster.rank_pids("node-2")[0]
        with Stopped(hung, 0):
            wait_until(lambda: int(self.cluster.get(self.train)["generation"]) == 2, 40, "the next generation")
            self.assertFalse(os.path.exists(f"/proc/{hung}/exe"))
        self.cluster.wait_for_state(self.train, "RUNNING")
        failure = self.cluster.get(self.train)["first_failure"]
        self.assertEqual((failure["reason"], failure["rank"], failure["node"]), ("RankHung", 1, "node-2"), failure)
        self.check_continues(2, ("train",))
        self.assertEqual(int(self.cluster.get(self.command)["generation"]), 1)

    def test_tolerates_short_pause_of_worker(self):
        self.start()
        with Stopped(self.cluster.workers["node-2"].pid, SHORT):
            step = self.step()
            wait_until(lambda: self.step() > step + 5, 10, "steps without the worker")
        self.assertEqual(self.nodes(), {"node-1": "READY", "node-2": "READY"})
        self.check_continues()

    def test_loses_node_of_worker_paused_beyond_lease(self):
        """Its node is lost and its ranks are fenced; when it continues, the node is used again."""
        self.start()
        old = set(self.cluster.rank_pids())
        with Stopped(self.cluster.workers["node-2"].pid, LONG):
            wait_until(lambda: self.nodes()["node-2"] == "LOST", LEASE + 5, "node-2 lost")
            for job in (self.train, self.command):
                queued = self.cluster.wait_for_state(job, "QUEUED", timeout=15)
                self.assertEqual(queued["reason"], "NodeLost")
        for job in (self.train, self.command):
            running = self.cluster.wait_for_state(job, "RUNNING")
            self.assertEqual((running["first_failure"]["reason"], running["first_failure"]["node"]),
                             ("NodeLost", "node-2"))
        self.assertEqual(set(self.cluster.rank_pids()) & old, set())
        self.check_continues(2)

    def test_tolerates_pause_of_coordinator(self):
        """Its absence, however long, loses no node: leases are extended."""
        self.start()
        for seconds in (SHORT, LONG):
            with Stopped(self.cluster.coordinator.pid, seconds):
                pass
            # The workers may have disconnected in the meantime; they reconnect, and nothing is lost.
            wait_until(lambda: self.nodes() == {"node-1": "READY", "node-2": "READY"}, 20, "both nodes ready")
            self.check_continues()


if __name__ == "__main__":
    unittest.main()
