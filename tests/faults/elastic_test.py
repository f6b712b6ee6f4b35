"""Elastic jobs: a training continues on the nodes that are left, and grows when they return, without losing a step."""

import contextlib
import os
import signal
import unittest

from tests.support.cluster import Cluster, shell_spec, training_spec, wait_until

ELASTIC = {"nodes": {"min": 1, "max": 2}, "ranks_per_node": 2}


class ElasticTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=2, slots=2, coordinator_flags=["--job-lease=12s"]))

    def cancel(self, job):
        self.cluster.muster("cancel", job)
        self.cluster.wait(job, check=False)

    def ranks(self, job):
        return len(self.cluster.describe(job)["ranks"])

    def wait_for_generation(self, job, generation, ranks, step):
        def reached():
            status = self.cluster.get(job)
            self.assertNotIn(status["state"], ("FAILED", "SUCCEEDED"), status)
            done = int(status["generation"]) == generation and int(status.get("progress", {}).get("step", 0)) > step
            return status if done else None
        status = wait_until(reached, 60, f"generation {generation} beyond step {step}")
        self.assertEqual(self.ranks(job), ranks)
        return int(status["progress"]["step"])

    def test_training_shrinks_and_grows(self):
        """4 ranks, 2 after all processes of a node were killed, and 4 again once its worker is back."""
        job = self.cluster.submit(training_spec(
            "elastic", max_steps=10_000_000, resources=ELASTIC, restart={"max": 0}, failure_timeout="5s",
            checkpoint={"every_steps": 1_000_000}))
        step = self.wait_for_generation(job, 1, 4, 20)
        for pid, _ in self.cluster.processes("node-2"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.cluster.workers["node-2"].process.wait()
        step = self.wait_for_generation(job, 2, 2, step)
        self.cluster.start_worker("node-2", 2)
        step = self.wait_for_generation(job, 3, 4, step)
        self.assertEqual(int(self.cluster.get(job)["restarts"]), 1)
        text = self.cluster.muster("describe", job, "--events").stdout
        self.assertIn("growing from 1 to 2 nodes: node-2 is free", text)
        self.assertEqual(text.count(" in memory"), 2, text)
        self.assertNotIn("checkpoint of step", text)
        self.cancel(job)

    def test_command_starts_anew_with_each_number_of_ranks(self):
        """As under torchrun; its restarts are not counted."""
        job = self.cluster.submit(shell_spec(
            "elastic-command", "trap 'exit 0' TERM; echo world $WORLD_SIZE restart $TORCHELASTIC_RESTART_COUNT; "
            "sleep 600 & wait", nodes={"min": 1, "max": 2}, ranks=1))
        self.cluster.wait_for_state(job, "RUNNING")
        self.cluster.muster("node", "drain", "node-2")
        wait_until(lambda: self.ranks(job) == 1, 30, "one rank")
        self.cluster.muster("node", "uncordon", "node-2")
        wait_until(lambda: self.ranks(job) == 2, 30, "two ranks")
        self.cluster.wait_for_state(job, "RUNNING")
        for generation, world in ((1, 2), (2, 1), (3, 2)):
            log = self.cluster.muster("logs", job, "--rank", "0", "--generation", str(generation)).stdout
            self.assertIn(f"world {world} restart 0", log)
        self.cancel(job)


if __name__ == "__main__":
    unittest.main()
