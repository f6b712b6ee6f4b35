"""Leases of ranks: those of a dead or cut off worker end before the coordinator starts them elsewhere."""

import os
import pathlib
import signal
import subprocess
import time
import unittest

from tests.support.cluster import Cluster, shell_spec, training_spec, wait_until

REPETITIONS = int(os.environ.get("MUSTER_REPETITIONS", "20"))
JOB_LEASE = 5
FLAGS = ["--lease=2s", f"--job-lease={JOB_LEASE}s", "--heartbeat-interval=300ms"]

# Writes the time, for as long as it lives, to a file per generation. Ends by SIGKILL only.
BEATS = """
    trap '' TERM
    exec >> {folder}/generation-$MUSTER_GENERATION
    while :; do date +%s.%N; sleep 0.02; done"""


def beats(folder, generation):
    """The times at which the generation's rank was alive."""
    path = pathlib.Path(folder) / f"generation-{generation}"
    return [float(line) for line in path.read_text().split()] if path.exists() else []


class LeaseTest(unittest.TestCase):
    def start(self):
        self.cluster = self.enterContext(Cluster(nodes=2, coordinator_flags=FLAGS))
        folder = self.cluster.directory
        self.job = self.cluster.submit(shell_spec("alone", BEATS.format(folder=folder),
                                                  failure_timeout=f"{JOB_LEASE}s"))
        self.cluster.wait_for_state(self.job, "RUNNING")
        self.node = self.cluster.describe(self.job)["ranks"][0]["node"]
        self.addCleanup(lambda: self.cluster.muster("cancel", self.job, "--grace", "0s"))
        wait_until(lambda: self.beats(1), 10, "the rank's first beat")

    def beats(self, generation):
        return beats(self.cluster.directory, generation)

    def check_never_two(self):
        wait_until(lambda: len(self.beats(2)) > 20, JOB_LEASE + 20, "generation 2")
        self.assertLess(self.beats(1)[-1], self.beats(2)[0])
        job = self.cluster.get(self.job)
        self.assertEqual((job["first_failure"]["reason"], job["first_failure"]["node"]), ("NodeLost", self.node))

    def test_ranks_of_killed_worker_end_before_they_start_elsewhere(self):
        """Only the rank's shim can end it: the job has a single node, so no peer rank detects the loss."""
        self.start()
        self.cluster.workers[self.node].kill()
        killed = time.time()
        self.check_never_two()
        self.assertGreater(self.beats(2)[0] - killed, JOB_LEASE - 1, "a broken stream alone loses nothing")

    def test_ranks_of_stopped_worker_end_before_they_start_elsewhere(self):
        self.start()
        os.kill(self.cluster.workers[self.node].pid, signal.SIGSTOP)
        try:
            self.check_never_two()
        finally:
            os.kill(self.cluster.workers[self.node].pid, signal.SIGCONT)
        self.cluster.wait_for_nodes(2)

    def test_restarted_worker_extends_lease(self):
        self.start()
        self.cluster.workers[self.node].kill()
        killed = time.time()
        self.cluster.start_worker(self.node)
        wait_until(lambda: time.time() > killed + 2 * JOB_LEASE, 2 * JOB_LEASE + 5, "the lease to be over")
        job = self.cluster.get(self.job)
        self.assertEqual((job["state"], int(job["generation"])), ("RUNNING", 1), job)
        self.assertGreater(self.beats(1)[-1], killed + 2 * JOB_LEASE - 1)

    def test_ranks_continue_without_coordinator(self):
        """No peer has an answer either, so the coordinator counts as dead; on_lost_coordinator is continue."""
        self.start()
        self.cluster.coordinator.kill()
        killed = time.time()
        wait_until(lambda: time.time() > killed + 2 * JOB_LEASE, 2 * JOB_LEASE + 5, "the lease to be over")
        self.assertGreater(self.beats(1)[-1], killed + 2 * JOB_LEASE - 1)
        self.cluster.start_coordinator()
        self.cluster.wait_for_nodes(2)
        job = self.cluster.get(self.job)
        self.assertEqual((job["state"], int(job["generation"])), ("RUNNING", 1), job)


class LeaseLongTest(unittest.TestCase):
    """Stopped daemons end no job, with the default leases and while all CPUs are busy.

    MUSTER_REPETITIONS: stops of each kind.
    """

    def setUp(self):
        self.cluster = self.enterContext(Cluster(nodes=2, slots=2))
        self.command = self.cluster.submit(shell_spec("command", "exec sleep 1000", nodes=2))
        self.train = self.cluster.submit(training_spec(
            "train", max_steps=10000000, resources={"nodes": 2, "ranks_per_node": 1}, grace_period="1s"))
        self.cluster.wait_for_step(self.train, 20)
        for _ in range(2 * os.cpu_count()):
            load = subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"])
            self.addCleanup(load.wait)
            self.addCleanup(load.kill)

    def check_continues(self, pid, seconds):
        os.kill(pid, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            wait_until(lambda: time.monotonic() > stopped + seconds, seconds + 5, "the stop to be over")
        finally:
            os.kill(pid, signal.SIGCONT)
        self.cluster.wait_for_nodes(2, timeout=60)
        step = int(self.cluster.get(self.train)["progress"]["step"])
        self.cluster.wait_for_step(self.train, step + 20, timeout=120)
        for job in (self.command, self.train):
            state = self.cluster.get(job)
            self.assertEqual((state["state"], int(state["generation"])), ("RUNNING", 1), state)
            self.assertNotIn("first_failure", state)

    def tearDown(self):
        for job in (self.command, self.train):
            self.cluster.muster("cancel", job, "--grace", "0s")
            self.cluster.wait(job, check=False)

    def test_coordinator_stopped_for_20s(self):
        for _ in range(REPETITIONS):
            self.check_continues(self.cluster.coordinator.pid, 20)

    def test_worker_stopped_for_8s(self):
        for _ in range(REPETITIONS):
            self.check_continues(self.cluster.workers["node-2"].pid, 8)


if __name__ == "__main__":
    unittest.main()
