"""A training that is stopped saves its state first, on all ranks after the same step, and continues from there."""

import pathlib
import unittest

from tests.support.cluster import Cluster, training_spec, wait_until


def saved_steps(directory):
    """Steps of the checkpoints in `directory`."""
    return sorted(int(path.name[len("step-"):].split(".")[0]) for path in pathlib.Path(directory).glob("step-*"))


class StopSavesTest(unittest.TestCase):
    def setUp(self):
        self.cluster = self.enterContext(Cluster(nodes=2, slots=2))
        self.checkpoints = self.cluster.directory / "checkpoints"

    def start(self, nodes, ranks, **train):
        job = self.cluster.submit(training_spec(
            "stopped", resources={"nodes": nodes, "ranks_per_node": ranks}, restart={"max": 0}, grace_period="20s",
            checkpoint={"dir": str(self.checkpoints)}, **train))
        self.cluster.wait_for_step(job, 20)
        return job

    def test_cancelled_job_has_a_checkpoint_of_its_last_step(self):
        for nodes, ranks in ((1, 1), (1, 2), (2, 1), (2, 2)):
            with self.subTest(nodes=nodes, ranks=ranks):
                job = self.start(nodes, ranks, max_steps=1000000)
                self.assertEqual(saved_steps(self.checkpoints), [])
                self.cluster.muster("cancel", job)
                cancelled = self.cluster.wait(job, check=False)
                self.assertEqual(cancelled["state"], "CANCELLED", cancelled)
                step, = saved_steps(self.checkpoints)
                self.assertGreaterEqual(step, 20)
                self.assertEqual(step, int(cancelled["checkpoint"]["step"]))
                self.assertEqual(step, int(cancelled["progress"]["step"]))
                self.checkpoints.rename(self.checkpoints.with_name(f"of-{job}"))

    def test_requeued_job_continues_after_its_last_step(self):
        """The summary covers both generations."""
        job = self.start(2, 1, model={"name": "mlp", "hidden": [16]}, global_batch=1000, max_steps=400,
                         evaluate_every_epochs=1)
        self.cluster.wait_for_step(job, 61)
        self.cluster.muster("requeue", job)
        wait_until(lambda: int(self.cluster.get(job)["generation"]) == 2, 30, "the second generation")
        step, = saved_steps(self.checkpoints)
        finished = self.cluster.wait(job)
        self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 2), finished)
        summary = finished["summary"]
        self.assertEqual(int(summary["resumed_from_step"]), step)
        self.assertEqual([int(evaluation["step"]) for evaluation in summary["evaluations"]],
                         [60, 120, 180, 240, 300, 360, 400])
        self.assertEqual(int(summary["first_loss_step"]), 1)


if __name__ == "__main__":
    unittest.main()
