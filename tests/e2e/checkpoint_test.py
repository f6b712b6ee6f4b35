"""`muster checkpoint`: writes a checkpoint of a running training, and shows checkpoints that cannot be written."""

import json
import os
import pathlib
import shutil
import signal
import unittest

from tests.support.cluster import Cluster, training_spec, wait_until


def endless(name, **train):
    """A training that writes no checkpoint by itself."""
    checkpoint = {"every": "never", **train.pop("checkpoint", {})}
    return training_spec(name, max_steps=1_000_000, checkpoint=checkpoint, **train)


class CheckpointTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=1, slots=2))

    def events(self, job):
        return json.loads(self.cluster.muster("describe", job, "--events", "-o", "json").stdout)["events"]

    def start(self, spec):
        job = self.cluster.submit(spec)
        self.addCleanup(self.cluster.muster, "cancel", job, "--force")
        self.cluster.wait_for_step(job, 5)
        return job

    def test_prints_the_path_of_the_checkpoint(self):
        job = self.start(endless("asked", resources={"nodes": 1, "ranks_per_node": 2}))
        before = int(self.cluster.get(job)["progress"]["step"])
        path = pathlib.Path(self.cluster.muster("checkpoint", job).stdout.strip())
        self.assertTrue((path / "model.safetensors").is_file(), path)
        status = self.cluster.get(job)["checkpoint"]
        self.assertGreaterEqual(int(status["step"]), before)
        self.assertEqual(self.cluster.get(job)["state"], "RUNNING")
        described = self.cluster.muster("describe", job).stdout
        self.assertRegex(described, rf"Checkpoint: +{status['dir']}/{status['name']}, step {status['step']}, only on node-1")
        # The next one is newer, and -o json prints the job.
        again = json.loads(self.cluster.muster("checkpoint", job, "-o", "json").stdout)
        self.assertGreater(int(again["checkpoint"]["step"]), int(status["step"]))
        self.assertEqual(self.cluster.muster("checkpoint", job, "-o", "name").stdout, f"{job}\n")
        self.assertEqual(self.cluster.muster("checkpoint", job, "--no-wait").stdout, f"{job} checkpoint requested\n")
        events = [event["message"] for event in self.events(job)
                  if event["type"] == "CheckpointRequested"]
        self.assertEqual(len(events), 4)
        # The job resumes from the checkpoint.
        newest = int(self.cluster.get(job)["checkpoint"]["step"])
        for pid in self.cluster.rank_pids():
            os.kill(pid, signal.SIGKILL)
        resumed = wait_until(lambda: int(self.cluster.get(job)["checkpoint"].get("resumed_step", 0)), 60, "the restart")
        self.assertGreaterEqual(resumed, newest)

    def test_gives_up_after_the_timeout(self):
        job = self.start(endless("stopped", failure_timeout="300s"))
        rank, = self.cluster.rank_pids()
        os.kill(rank, signal.SIGSTOP)
        try:
            result = self.cluster.muster("checkpoint", job, "--timeout", "1s", check=False)
        finally:
            os.kill(rank, signal.SIGCONT)
        self.assertEqual(result.returncode, 124, result.stderr)
        self.assertIn("has written no checkpoint within 1s", result.stderr)

    def test_shows_why_a_checkpoint_cannot_be_written(self):
        directory = self.cluster.directory / "gone"
        job = self.start(endless("failing", checkpoint={"dir": str(directory)}))
        shutil.rmtree(directory, ignore_errors=True)
        directory.touch()
        result = self.cluster.muster("checkpoint", job, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn(f"cannot be written to {directory}", result.stderr)
        self.assertIn("1 failed in this generation, the latest at step ", self.cluster.muster("describe", job).stdout)
        self.assertIn("Checkpoints: 1 failed in this generation", self.cluster.muster("why", job).stdout)
        self.assertIn("CheckpointFailed", [event["type"] for event in self.events(job)])
        self.assertEqual(self.cluster.get(job)["state"], "RUNNING")
        # It can be written again once the cause is gone.
        directory.unlink()
        directory.mkdir()
        path = self.cluster.muster("checkpoint", job).stdout.strip()
        self.assertTrue(os.path.isdir(path), path)

    def test_keeps_the_best_checkpoint(self):
        """After the first epoch, the learning rate is so high that the loss grows."""
        directory = self.cluster.directory / "best"
        finished = self.cluster.run(training_spec(
            "best", model={"name": "mlp", "hidden": [16]}, global_batch=1000, max_steps=180, evaluate_every_epochs=1,
            optimizer={"name": "sgd", "learning_rate": 0.1, "clip_norm": 1},
            schedule={"name": "step", "milestones": [1], "factor": 100},
            checkpoint={"dir": str(directory), "keep": 1, "keep_best": "test_loss"}))
        self.assertEqual(finished["state"], "SUCCEEDED", finished)
        losses = {int(evaluation["step"]): evaluation["test_loss"] for evaluation in finished["summary"]["evaluations"]}
        self.assertEqual(min(losses, key=losses.get), 60, losses)
        best, newest = directory / "step-00000060.g1", directory / "step-00000180.g1"
        self.assertEqual(sorted(directory.iterdir()), [best, newest])
        status = finished["checkpoint"]
        self.assertEqual((status["best_name"], int(status["best_step"])), (best.name, 60))
        self.assertEqual((status["name"], int(status["step"])), (newest.name, 180))
        self.assertAlmostEqual(json.loads((best / "state.json").read_text())["test_loss"], losses[60])
        self.assertIn(f"{best}, step 60", self.cluster.muster("describe", finished["job_id"]).stdout)

    def test_refuses_jobs_without_checkpoints(self):
        job = self.start(endless("none", checkpoint={"keep": 0}))
        result = self.cluster.muster("checkpoint", job, check=False)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("writes no checkpoints: train.checkpoint.keep is 0", result.stderr)
        queued = self.cluster.submit(endless("queued", resources={"nodes": 1, "ranks_per_node": 2}))
        self.addCleanup(self.cluster.muster, "cancel", queued, "--force")
        self.assertIn("is QUEUED; only a training that is RUNNING",
                      self.cluster.muster("checkpoint", queued, check=False).stderr)


if __name__ == "__main__":
    unittest.main()
