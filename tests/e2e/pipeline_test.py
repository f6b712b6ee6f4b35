"""Pipeline parallelism with real daemons: the same training as on one rank."""

import os
import signal
import unittest

from tests.support.cluster import Cluster, training_spec

BATCH = 64
STEPS = 50
PLAIN = {"model": {"name": "small_cnn", "batch_norm": False}}
SCHEDULES = ("sequential", "gpipe", "1f1b")


def pipeline(stages, replicas=1, nodes=1, **options):
    return {"strategy": {"name": "pipeline", "pipeline": {"stages": stages, **options}},
            "resources": {"nodes": nodes, "ranks_per_node": stages * replicas // nodes}}


def spec(**train):
    settings = {"max_steps": STEPS, "global_batch": BATCH,
                "optimizer": {"name": "sgd", "learning_rate": 0.01, "momentum": 0.9}, **train}
    return training_spec("pipeline", **settings)


class PipelineTest(unittest.TestCase):
    def train(self, cluster, **train):
        job = cluster.run(spec(**train), "--losses")
        self.assertEqual(job["state"], "SUCCEEDED", job)
        self.assertEqual(int(job["summary"].get("differing_replicas", 0)), 0)
        return job["summary"]

    def assert_same_curve(self, summary, expected, tolerance, what):
        self.assertEqual(len(summary["losses"]), len(expected["losses"]))
        worst = max(abs(a - b) for a, b in zip(summary["losses"], expected["losses"]))
        self.assertLess(worst, tolerance, what)
        print(f"{what}: at most {worst:.1e} apart")

    def test_schedules_train_identically(self):
        with Cluster(nodes=2, slots=4) as cluster:
            alone = self.train(cluster, **PLAIN)
            self.assertLess(alone["losses"][-1], alone["losses"][0])
            of_schedules = [self.train(cluster, **PLAIN, **pipeline(2, schedule=schedule, micro_batches=4))
                            for schedule in SCHEDULES]
            for schedule, summary in zip(SCHEDULES, of_schedules):
                self.assert_same_curve(summary, alone, 1e-4, schedule)
                self.assertAlmostEqual(summary["test_accuracy"], alone["test_accuracy"], delta=0.0011)  # one of 1,000 images
                self.assertEqual(summary["parameters"], alone["parameters"])
            # Gradients are summed in the same order in every schedule.
            self.assertEqual(len({summary["weights_digest"] for summary in of_schedules}), 1)
            for what, way in {
                    "3 stages": pipeline(3, micro_batches=5),
                    "2 stages on 2 nodes": pipeline(2, nodes=2, micro_batches=4),
                    "2 stages, 2 replicas": pipeline(2, replicas=2, micro_batches=3),
                    "2 stages, 2 replicas, each on a node": pipeline(2, replicas=2, nodes=2, schedule="gpipe")}.items():
                summary = self.train(cluster, **PLAIN, **way)
                self.assert_same_curve(summary, alone, 1e-4, what)

    def test_dropout_clipping_ema_and_mixed_precision(self):
        """Random draws and quantities computed from all parameters do not depend on the stages."""
        cases = {
            "dropout": ({"model": {"layers": [
                {"conv2d": {"out_channels": 16, "kernel": 3, "padding": 1}}, "relu", {"max_pool2d": {"kernel": 2}},
                {"dropout": {"probability": 0.3}}, {"conv2d": {"out_channels": 16, "kernel": 3, "padding": 1}}, "relu",
                "flatten", {"dropout": {"probability": 0.5}}, "linear"]}}, 1e-4),
            "clipping": ({**PLAIN, "optimizer": {"name": "sgd", "learning_rate": 0.01, "clip_norm": 0.5}}, 1e-4),
            "average": ({**PLAIN, "ema": {"decay": 0.9}}, 1e-4),
            # Rounded at the same points, but sums over micro-batches are in float32.
            "O2": ({**PLAIN, "precision": "O2"}, 2e-2),
        }
        with Cluster(nodes=1, slots=2) as cluster:
            for what, (train, tolerance) in cases.items():
                alone = self.train(cluster, max_steps=15, **train)
                staged = self.train(cluster, max_steps=15, **train, **pipeline(2, micro_batches=4))
                self.assert_same_curve(staged, alone, tolerance, what)
                self.assertAlmostEqual(staged["test_accuracy"], alone["test_accuracy"], delta=0.02)
            clipped, free = ({**PLAIN, "optimizer": {"name": "sgd", "learning_rate": 0.01, **clip}}
                             for clip in ({"clip_norm": 0.5}, {}))
            with self.assertRaises(AssertionError):
                self.assert_same_curve(self.train(cluster, max_steps=15, **clipped),
                                       self.train(cluster, max_steps=15, **free), 1e-3, "clipping had no effect")

    def test_all_stages_skip_overflowed_steps(self):
        scaled = {**PLAIN, "precision": "O1",
                  "mixed_precision": {"dtype": "float16", "loss_scale": {"initial": 2**24, "growth_interval": 1000}}}
        with Cluster(nodes=1, slots=2) as cluster:
            staged = self.train(cluster, max_steps=60, **scaled, **pipeline(2, micro_batches=2))
        self.assertGreater(int(staged["skipped_steps"]), 0)
        self.assertLess(int(staged["skipped_steps"]), 60)

    def test_checkpoints_contain_whole_model(self):
        """Training resumes with another strategy from a pipeline's checkpoint, and vice versa."""
        with Cluster(nodes=1, slots=4) as cluster:
            sharded = {"strategy": {"name": "ddp", "shard_optimizer": True}, "resources": {"ranks_per_node": 3}}
            ways = {"pipeline": pipeline(2, micro_batches=4), "one rank": {}, "replicas": pipeline(2, replicas=2),
                    "sharded": sharded}
            whole = self.train(cluster, **PLAIN, max_steps=20, ema={"decay": 0.9})
            for first, second in (("pipeline", "sharded"), ("sharded", "one rank"), ("one rank", "pipeline"),
                                  ("replicas", "pipeline")):
                directory = cluster.directory / f"{first} {second}"
                train = {**PLAIN, "ema": {"decay": 0.9}}
                self.train(cluster, **train, max_steps=10, checkpoint={"dir": str(directory)}, **ways[first])
                resumed = self.train(cluster, **train, max_steps=20, checkpoint={"resume_from": str(directory)},
                                     **ways[second])
                self.assertEqual(int(resumed["resumed_from_step"]), 10)
                what = f"{first}, then {second}"
                worst = max(abs(a - b) for a, b in zip(resumed["losses"], whole["losses"][10:]))
                self.assertLess(worst, 1e-4, what)
                self.assertAlmostEqual(resumed["test_accuracy"], whole["test_accuracy"], places=2)
            # Initialization from weights only, which two stages have written.
            folder = directory / "step-00000010.g1"
            self.assertEqual([file.name for file in sorted(folder.glob("model*"))],
                             ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                              "model.safetensors.index.json"])
            start = self.train(cluster, **PLAIN, max_steps=2, init_from=str(folder), **ways["replicas"])
            alone = self.train(cluster, **PLAIN, max_steps=2, init_from=str(folder / "model.safetensors.index.json"))
            self.assert_same_curve(start, alone, 1e-5, "init_from")
            damaged = cluster.directory / "damaged.safetensors"
            damaged.write_bytes((folder / "model-00001-of-00002.safetensors").read_bytes()[:1000])
            failed = cluster.run(spec(**PLAIN, max_steps=2, init_from=str(damaged), **ways["pipeline"]), check=False)
            self.assertEqual(failed["first_failure"]["exit"]["exit_code"], 66)
            self.assertIn("damaged.safetensors", failed["first_failure"]["message"])

    def test_restarts_killed_stage(self):
        with Cluster(nodes=2, slots=2) as cluster:
            train = spec(**PLAIN, max_steps=400, checkpoint={"dir": str(cluster.directory / "ckpt"), "every_steps": 20},
                         **pipeline(2, replicas=2, nodes=2, micro_batches=4))
            train["restart"] = {"max": 2}
            job = cluster.submit(train)
            cluster.wait_for_step(job, 60)
            os.kill(cluster.rank_pids("node-2")[0], signal.SIGKILL)
            finished = cluster.wait(job)
            self.assertEqual(finished["state"], "SUCCEEDED", finished)
            self.assertGreaterEqual(int(finished["summary"]["resumed_from_step"]), 20)
            self.assertIn(finished["past_failures"][0]["rank"], (2, 3))

    def test_reports_stages_and_accepts_cuts(self):
        with Cluster(nodes=1, slots=2) as cluster:
            found = self.train(cluster, **PLAIN, max_steps=12, **pipeline(2, micro_batches=8))
            gpipe = self.train(cluster, **PLAIN, max_steps=12,
                               **pipeline(2, micro_batches=8, schedule="gpipe", cuts=[self.layer(found, 1)]))
            first, second = found["stages"]
            self.assertEqual(gpipe["stages"][1]["first_layer"], second["first_layer"])
            self.assertEqual(int(second["stage"]), 1)
            self.assertEqual([int(first["activation_slots"]), int(second["activation_slots"])], [2, 2])
            self.assertEqual(int(gpipe["stages"][0]["activation_slots"]), 8)
            # p / m of GPipe's memory.
            self.assertLessEqual(int(first["activation_bytes"]) * 8, int(gpipe["stages"][0]["activation_bytes"]) * 2 * 1.1)
            self.assertGreater(int(first["boundary_bytes"]), 0)
            for stage in (first, second):
                self.assertGreater(stage["forward_seconds"], 0)
                self.assertGreater(stage["backward_seconds"], 0)
                self.assertLess(stage["waiting_seconds"], stage["span_seconds"])
            self.assertGreater(found["bubble_ratio"], 0)
            self.assertLess(found["bubble_ratio"], 1)
            self.assertEqual([int(use.get("rank", 0)) for use in found["devices"]], [0, 1])

            wrong = cluster.run(spec(**PLAIN, **pipeline(2, cuts=["conv9"])), check=False)
            self.assertEqual(wrong["first_failure"]["exit"]["exit_code"], 78)
            self.assertIn("conv9", wrong["first_failure"]["message"])

    def layer(self, summary, stage):
        return summary["stages"][stage]["first_layer"]


if __name__ == "__main__":
    unittest.main()
