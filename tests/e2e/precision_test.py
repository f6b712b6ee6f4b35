"""Mixed precision with real daemons: trains like float32, and lowers a loss scale that is too large."""

import json
import re
import unittest
import urllib.request

from tests.support.cluster import Cluster, training_spec, wait_until

BAD_SPEC = 78
FLOAT16_TOO_LARGE = {"dtype": "float16", "loss_scale": {"initial": 2**24, "growth_interval": 1000}}
SHAPES = {"one node": {"nodes": 1, "ranks_per_node": 2}, "two nodes": {"nodes": 2, "ranks_per_node": 1}}


def metrics_of(worker, job):
    """{name: (labels, value)} of the job's rank on a worker with one rank."""
    with urllib.request.urlopen(f"http://{worker.addresses['http']}/metrics", timeout=10) as response:
        text = response.read().decode()
    found = {}
    for name, labels, value in re.findall(r"^(muster_\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
        labels = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if labels.pop("job_id", None) == job:
            found[name] = labels, float(value)
    return found


class PrecisionTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=2, slots=2))

    def test_lowers_excessive_loss_scale(self):
        for shape, resources in SHAPES.items():
            with self.subTest(shape):
                job = self.cluster.run(training_spec(
                    f"float16-{shape.replace(' ', '-')}", max_steps=60, global_batch=128, precision="O2",
                    mixed_precision=FLOAT16_TOO_LARGE, resources=resources), "--losses")
                self.assertEqual(job["state"], "SUCCEEDED")
                summary = job["summary"]
                skipped = int(summary["skipped_steps"])
                self.assertEqual(int(summary["steps"]), 60)
                # Over shared memory gradients are not converted.
                gradients = "float32" if resources["nodes"] == 1 else "float16"
                self.assertEqual(summary["precision"], f"O2 float16, gradients {gradients}")
                # Only skipped steps change a scale that does not grow.
                self.assertGreater(skipped, 0)
                self.assertEqual(summary["loss_scale"], 2**24 * 0.5**skipped)
                losses = [float(loss) for loss in summary["losses"]]
                # A skipped step leaves the weights unchanged.
                self.assertLess(sum(losses[-10:]), 0.6 * sum(losses[:3]) / 3 * 10)
                self.assertGreater(summary["test_accuracy"], 0.5)

                name = job["job_id"]
                self.assertEqual(int(job["progress"]["skipped_steps"]), skipped)
                events = json.loads(self.cluster.muster("describe", name, "--events", "-o", "json").stdout)["events"]
                messages = [e["message"] for e in events if e["type"] == "LossScaleLowered"]
                self.assertTrue(messages and len(messages) <= skipped.bit_length() + 1, messages)
                self.assertRegex(messages[-1], r"the loss scale is \d+ at step \d+: gradients overflowed; \d+ steps? skipped")
                text = self.cluster.muster("describe", name).stdout
                self.assertRegex(text, rf"loss scale {summary['loss_scale']:.0f} \({skipped} steps? skipped\)")
                self.assertIn(f"O2 float16, gradients {gradients}", text)
                self.assertRegex(text, r"step [\d.]+ ms \(\d+ % in kernels, \d+ % waiting for other ranks\)")

    def test_worker_exports_precision_and_loss_scale(self):
        name = self.cluster.submit(training_spec(
            "float16-metrics", max_steps=1_000_000, precision="O2", mixed_precision=FLOAT16_TOO_LARGE,
            resources={"nodes": 2, "ranks_per_node": 1}))
        self.addCleanup(self.cluster.wait, name, check=False)
        self.addCleanup(self.cluster.muster, "cancel", name)
        self.cluster.wait_for_step(name, 20)

        def metrics_with_skipped_steps():
            metrics = metrics_of(self.cluster.workers["node-2"], name)
            return metrics if metrics.get("muster_train_skipped_steps_total", ({}, 0))[1] > 0 else None
        metrics = wait_until(metrics_with_skipped_steps, 20, "skipped steps among the metrics")
        labels, skipped = metrics["muster_train_skipped_steps_total"]
        self.assertEqual(labels, {"rank": "1"})
        self.assertEqual(metrics["muster_train_loss_scale"], (labels, 2**24 * 0.5**skipped))
        self.assertEqual(metrics["muster_train_precision_info"], (
            {"rank": "1", "precision": "O2", "dtype": "float16", "gradient_dtype": "float16"}, 1))
        self.assertIn("loss scale", self.cluster.muster("describe", name).stdout)

    def test_low_precision_matches_float32(self):
        def summary(level, **more):
            job = self.cluster.run(training_spec(
                f"level-{level.lower()}", max_steps=150, precision=level,
                resources={"nodes": 1, "ranks_per_node": 2}, **more), "--losses")
            self.assertEqual(job["state"], "SUCCEEDED")
            return job["summary"]

        whole = summary("O0")
        self.assertEqual(whole["precision"], "O0 float32")
        mean = sum(whole["losses"][-50:]) / 50
        for level in ("O1", "O2", "O3"):
            with self.subTest(level):
                mixed = summary(level)
                self.assertNotIn("loss_scale", {k for k, v in mixed.items() if v})
                self.assertNotEqual(mixed["weights_digest"], whole["weights_digest"])
                self.assertAlmostEqual(sum(mixed["losses"][-50:]) / 50 / mean, 1, delta=0.1)
                self.assertAlmostEqual(mixed["test_accuracy"], whole["test_accuracy"], delta=0.05)

    def test_checkpoint_requires_same_precision(self):
        directory = self.cluster.directory / "checkpoints"
        spec = training_spec("first", max_steps=12, precision="O2", mixed_precision=FLOAT16_TOO_LARGE,
                             checkpoint={"dir": str(directory)})
        first = self.cluster.run(spec)["summary"]
        state = json.loads((directory / "step-00000012.g1" / "state.json").read_text())
        self.assertEqual(state["loss_scale"]["scale"], first["loss_scale"])
        self.assertEqual(state["loss_scale"]["skipped_steps"], int(first["skipped_steps"]))

        spec["train"]["max_steps"] = 24
        spec["train"]["checkpoint"]["resume_from"] = str(directory)
        rest = self.cluster.run(dict(spec, name="rest"))["summary"]
        self.assertEqual(int(rest["resumed_from_step"]), 12)
        self.assertGreaterEqual(int(rest["skipped_steps"]), int(first["skipped_steps"]))
        self.assertLessEqual(rest["loss_scale"], first["loss_scale"])

        spec["train"]["mixed_precision"] = {"dtype": "bfloat16"}
        other = self.cluster.run(dict(spec, name="other"), check=False)
        self.assertEqual(other["state"], "FAILED")
        self.assertIn("of another training", other["first_failure"]["message"])

    def test_rejects_invalid_specs(self):
        cases = [
            ({"precision": "O4"}, "train.precision: unknown 'O4'"),
            ({"mixed_precision": {"dtype": "bfloat16"}}, "train.mixed_precision: is given, but train.precision is O0"),
            ({"precision": "O2", "mixed_precision": {"dtype": "bf16"}}, "did you mean 'bfloat16'?"),
            ({"precision": "O2", "mixed_precision": {"gradient_dtype": "fp16"}}, "did you mean 'float16'?"),
            ({"precision": "O2", "mixed_precision": {"dtype": "float16", "loss_scale": {"backoff_factor": 2}}},
             "train.mixed_precision.loss_scale.backoff_factor: must be above 0 and below 1"),
            ({"precision": "O2", "mixed_precision": {"loss_scale": {"growth_interval": 5}}},
             "train.mixed_precision.loss_scale.initial: is missing"),
        ]
        for fields, expected in cases:
            with self.subTest(expected):
                path = self.cluster.write_spec(training_spec("bad", **fields))
                result = self.cluster.muster("run", path, check=False)
                self.assertEqual(result.returncode, BAD_SPEC, result.stderr)
                self.assertIn(expected, result.stderr)


if __name__ == "__main__":
    unittest.main()
