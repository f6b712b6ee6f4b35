"""Slow but healthy work is not killed: phases and checkpoints last as long as they make progress."""

import os
import pathlib
import re
import signal
import time
import unittest

from PIL import Image

from tests.support.cluster import Cluster, binary, training_spec, wait_until


class SlowDisks(unittest.TestCase):
    def start(self, nodes, slots, slow_path, **slow):
        """Start a cluster whose ranks access paths that contain `slow_path` slowly (tests/faults/slow_disk.cc)."""
        self.cluster = self.enterContext(Cluster(nodes=0))
        program = self.cluster.directory / "slow-rank"
        variables = " ".join(f"{name}={value}" for name, value in slow.items())
        program.write_text(f"#!/bin/sh\nexport LD_PRELOAD={binary('tests/faults/libslow-disk.so')}\n"
                           f"export SLOW_PATH={slow_path} {variables}\n"
                           f'exec {binary("trainer/muster-rank")} "$@"\n')
        program.chmod(0o755)
        for i in range(nodes):
            self.cluster.start_worker(f"node-{i + 1}", slots, flags=[f"--rank-binary={program}"])
        self.cluster.wait_for_nodes(nodes)

    PARTS = {"strategy": {"name": "ddp", "shard_optimizer": True}}  # each rank writes its part of a checkpoint

    def submit(self, nodes, ranks, checkpoint=(), **train):
        return self.cluster.submit(training_spec(
            "slow", resources={"nodes": nodes, "ranks_per_node": ranks}, failure_timeout="2s", restart={"max": 0},
            checkpoint={"dir": str(self.cluster.directory / "checkpoints"), **dict(checkpoint)}, **train))

    def progress(self, job):
        return self.cluster.get(job).get("progress", {})

    def wait_for_checkpointing(self, job):
        """Wait until the job has written a part of a checkpoint."""
        wait_until(lambda: (p := self.progress(job)).get("phase") == "checkpointing"
                   and int(p.get("phase_progress", 0)) > 0, 30, "a checkpoint to be written")

    def check_slow_checkpoint(self, nodes, ranks, slow=(), **train):
        """Write a checkpoint of 3.4 MB that takes four times failure_timeout."""
        self.start(nodes, ranks, "/checkpoints/", SLOW_WRITE_BYTES_PER_SECOND=400000, **dict(slow))
        job = self.submit(nodes, ranks, max_steps=3, **train)
        self.wait_for_checkpointing(job)
        self.assertEqual(self.progress(job)["phase_unit"], "MiB written")
        start = time.monotonic()
        finished = self.cluster.wait(job)
        self.assertGreater(time.monotonic() - start, 3)
        self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1), finished)
        self.assertNotIn("first_failure", finished)

    def check_names_rank_stopped(self, rank, slow=(), **train):
        self.start(2, 1, "/checkpoints/", SLOW_WRITE_BYTES_PER_SECOND=400000, **dict(slow))
        job = self.submit(2, 1, max_steps=3, **train)
        self.wait_for_checkpointing(job)
        pid, = [pid for pid in self.cluster.rank_pids() if self.rank_of(pid) == rank]
        os.kill(pid, signal.SIGSTOP)
        failed = self.cluster.wait(job, check=False)
        failure = failed["first_failure"]
        self.assertEqual((failure["reason"], failure["rank"]), ("RankHung", rank), failure)

    @staticmethod
    def rank_of(pid):
        variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return next(int(v[len(b"RANK="):]) for v in variables if v.startswith(b"RANK="))

    def training_on_images(self, train, val):
        """Settings of a job of one step on new images in two classes."""
        images = self.cluster.directory / "images"
        for split, count in (("train", train), ("val", val)):
            for label in range(2):
                folder = images / split / f"class-{label}"
                folder.mkdir(parents=True)
                Image.new("RGB", (32, 32), (label * 100, 20, 30)).save(folder / "0.jpg")
                for i in range(1, count // 2):
                    os.link(folder / "0.jpg", folder / f"{i}.jpg")
        hour_ago = time.time() - 3600  # long before the folders are listed
        for folder, _, _ in os.walk(images):
            os.utime(folder, (hour_ago, hour_ago))
        return {"dataset": {"name": "image_folder", "path": str(images)}, "image_size": 32, "max_steps": 1,
                "global_batch": 4}


class SlowCheckpointTest(SlowDisks):
    def test_checkpoint_slower_than_failure_timeout_in_shared_memory(self):
        self.check_slow_checkpoint(1, 2)

    def test_checkpoint_slower_than_failure_timeout_between_nodes(self):
        self.check_slow_checkpoint(2, 1)

    def test_part_of_checkpoint_slower_than_failure_timeout(self):
        """Rank 1, which has the largest layer, writes slowly; rank 0 waits for it and publishes."""
        self.check_slow_checkpoint(2, 1, slow={"SLOW_RANK": 1}, **self.PARTS)
        folder = self.cluster.directory / "checkpoints" / "step-00000003.g1"
        self.assertTrue((folder / "model-00002-of-00002.safetensors").is_file())

    def test_names_rank_stopped_while_it_writes_checkpoint(self):
        self.check_names_rank_stopped(0)

    def test_training_continues_while_checkpoint_is_written(self):
        """Steps are made while a checkpoint is written; a stop waits for it and then saves the last step."""
        self.start(2, 1, "/checkpoints/", SLOW_WRITE_BYTES_PER_SECOND=1000000)
        job = self.submit(2, 1, checkpoint={"every_steps": 10}, max_steps=1000000)

        def written():
            return int(self.cluster.get(job).get("checkpoint", {}).get("step", 0))
        phases = set()

        def step_when_written():
            progress = self.progress(job)
            if int(progress.get("step", 0)) > 10:
                phases.add(progress["phase"])
            return int(progress["step"]) if written() > 0 else 0
        step = wait_until(step_when_written, 60, "the first checkpoint")
        self.assertEqual(written(), 10)
        self.assertGreater(step, 15)
        self.assertLessEqual(phases, {"training", "checkpointing"})
        self.assertIn("training", phases)
        self.assertIn("training stalled for", self.cluster.muster("logs", job, "--rank", "0").stdout)

        self.cluster.muster("cancel", job)
        cancelled = self.cluster.wait(job, check=False)
        self.assertEqual(cancelled["state"], "CANCELLED")
        self.assertGreater(written(), step)
        self.assertEqual(written(), int(cancelled["progress"]["step"]))


class SlowDataTest(SlowDisks):
    def test_ranks_may_evaluate_at_different_speeds(self):
        """One rank needs four times failure_timeout longer than the other to evaluate its images."""
        self.start(2, 1, "/images/val/", SLOW_READ_MICROSECONDS=40000, SLOW_RANK=1)
        job = self.submit(2, 1, **self.training_on_images(10, 400))
        finished = self.cluster.wait(job, check=False)
        self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 1), finished)

    def test_stop_ends_slow_evaluation(self):
        """A job that is cancelled in an evaluation that takes 8 s saves its state at once."""
        self.start(2, 1, "/images/val/", SLOW_READ_MICROSECONDS=40000, SLOW_RANK=1)
        job = self.submit(2, 1, **{**self.training_on_images(10, 400), "max_steps": 1000000,
                                   "evaluate_every_epochs": 1})
        wait_until(lambda: self.progress(job).get("phase") == "evaluating", 60, "an evaluation")
        start = time.monotonic()
        self.cluster.muster("cancel", job)
        cancelled = self.cluster.wait(job, check=False)
        self.assertLess(time.monotonic() - start, 5)
        self.assertEqual(cancelled["state"], "CANCELLED")
        self.assertEqual(int(cancelled["checkpoint"]["step"]), 3)

    def test_data_set_is_indexed_once_per_node_with_progress(self):
        """Two ranks and two jobs on one node: the first rank lists the images, the others use its index."""
        self.start(1, 2, "/images/", SLOW_STAT_MICROSECONDS=10000)
        spec = self.training_on_images(400, 10)
        job = self.submit(1, 2, **spec)
        shown = {0: set(), 1: set()}  # by rank

        def listed():
            for wait in self.cluster.get(job).get("waits", []):
                for missing in wait.get("missing", []):
                    text = re.search(r"\(loading-data: (\d+) files indexed\)", missing.get("reason", ""))
                    if text and int(text[1]) > 0:
                        shown[int(missing.get("rank", 0))].add(text[1])
            return int(self.progress(job).get("step", 0)) > 0
        wait_until(listed, 60, "the first step")
        for counts in shown.values():
            self.assertGreater(len(counts), 1, shown)
        self.assertEqual(self.cluster.wait(job)["state"], "SUCCEEDED")

        def indexes():
            """Identity of the index of train and of val."""
            found = [path for path in (self.cluster.directory / "node-1").rglob("folder-*") if not path.suffix]
            return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}
        made = indexes()
        self.assertEqual(len(made), 2)
        spec["seed"] = 2
        again = self.cluster.run(training_spec("again", resources={"nodes": 1, "ranks_per_node": 2}, **spec))
        self.assertEqual(again["state"], "SUCCEEDED")
        self.assertEqual(indexes(), made)


class SlowLongTest(SlowDisks):
    """Run by `tests/run.sh --full`."""

    def test_checkpoint_slower_than_failure_timeout_in_hierarchy(self):
        self.check_slow_checkpoint(2, 2)

    def test_names_rank_stopped_while_it_writes_its_part(self):
        self.check_names_rank_stopped(1, slow={"SLOW_RANK": 1}, **self.PARTS)


if __name__ == "__main__":
    unittest.main()
