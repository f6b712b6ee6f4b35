"""Real models and data with real daemons: results match the spec on every cluster shape."""

import hashlib
import os
import pathlib
import signal
import subprocess
import unittest

from tests.support.cluster import ROOT, Cluster, training_spec

PYTHON = "/usr/bin/python3"

# All sources of randomness together; with synchronized batch norm none of them depends on the
# number of ranks.
EVERYTHING = {
    "model": {"name": "small_cnn", "dropout": 0.2},
    "sync_batch_norm": True,
    "augment": {"crop_padding": 2, "flip": True, "random_erasing": {"probability": 0.5}},
    "optimizer": {"name": "sgd", "learning_rate": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4,
                  "clip_norm": 1.0},
    "ema": {"decay": 0.9},
}


def largest_difference(a, b):
    return max(abs(x - y) / abs(x) for x, y in zip(a, b))


class ShapesTest(unittest.TestCase):
    def test_randomness_is_independent_of_number_of_ranks(self):
        """A global batch of 50, which is not divisible by the 4 ranks."""
        losses = {}
        with Cluster(nodes=2, slots=2) as cluster:
            for nodes, ranks in [(1, 1), (1, 2), (2, 2)]:
                job = cluster.run(training_spec(
                    f"shape-{nodes}x{ranks}", global_batch=50, max_steps=30,
                    resources={"nodes": nodes, "ranks_per_node": ranks}, **EVERYTHING), "--losses")
                losses[nodes, ranks] = job["summary"]["losses"]
        worst = max(largest_difference(losses[1, 1], other) for other in losses.values())
        print(f"largest relative difference of 30 losses: {worst:.2e}")
        self.assertLessEqual(worst, 1e-4)
        self.assertLess(losses[1, 1][-1], losses[1, 1][0])

    def test_contrastive_loss_is_independent_of_number_of_ranks(self):
        losses = {}
        with Cluster(nodes=2, slots=2) as cluster:
            for nodes, ranks in [(1, 1), (2, 1), (2, 2)]:
                job = cluster.run(training_spec(
                    f"nt-xent-{nodes}x{ranks}", global_batch=30, max_steps=10,
                    objective={"name": "nt_xent", "temperature": 0.5, "projection": [64, 32]},
                    augment={"random_resized_crop": {}, "flip": True}, sync_batch_norm=True,
                    # Small enough that rounding errors do not grow.
                    optimizer={"name": "sgd", "learning_rate": 0.005},
                    resources={"nodes": nodes, "ranks_per_node": ranks}), "--losses")
                losses[nodes, ranks] = job["summary"]["losses"]
        worst = max(largest_difference(losses[1, 1], other) for other in losses.values())
        print(f"largest relative difference of 10 contrastive losses: {worst:.2e}")
        self.assertLessEqual(worst, 1e-5)


class ResumeTest(unittest.TestCase):
    STEPS = 300

    def test_resume_after_kill_reproduces_weights(self):
        """A training that is killed in mid-epoch and resumed from a checkpoint has the same weights, bit for bit, as an
        undisturbed one. Ranks of one node share the update and the optimizer state."""
        spec = dict(EVERYTHING, sync_batch_norm=False, optimizer={"name": "adamw", "learning_rate": 1e-3,
                                                                  "weight_decay": 0.01})

        def training(cluster, name, shape):
            # Long enough that it still trains when the client has seen a step.
            return training_spec(name, global_batch=32, max_steps=self.STEPS, restart={"max": 2},
                                 resources={"nodes": shape[0], "ranks_per_node": shape[1]},
                                 checkpoint={"dir": str(cluster.directory / name), "every_steps": 30}, **spec)

        for shape in (2, 1), (1, 2):
            with self.subTest(nodes=shape[0], ranks_per_node=shape[1]), Cluster(nodes=2, slots=2) as cluster:
                self.check_killed_rank(cluster, lambda name: training(cluster, name, shape))

    def check_killed_rank(self, cluster, training):
        whole = cluster.run(training("whole"))
        job = cluster.submit(training("killed"))
        cluster.wait_for_step(job, 40)
        # Running statistics are not synchronized: those of the checkpoint are rank 0's, which leaves its state.
        lost = next(rank for rank in cluster.describe(job)["ranks"] if rank.get("rank") == 1)
        os.kill(int(lost["pid"]), signal.SIGKILL)
        killed = cluster.wait(job)
        self.assertEqual(killed["state"], "SUCCEEDED")
        self.assertEqual(int(killed["generation"]), 2)
        self.assertGreaterEqual(int(killed["summary"]["resumed_from_step"]), 30)
        self.assertEqual(killed["summary"]["weights_digest"], whole["summary"]["weights_digest"])
        for file in ("model.safetensors", "optimizer.safetensors", "ema.safetensors"):
            digests = [hashlib.sha256((cluster.directory / name / folder / file).read_bytes()).hexdigest()
                       for name, folder in (("whole", f"step-{self.STEPS:08}.g1"), ("killed", f"step-{self.STEPS:08}.g2"))]
            self.assertEqual(digests[0], digests[1], file)


class ModelsTest(unittest.TestCase):
    def test_resnet18_with_all_options(self):
        with Cluster(nodes=2) as cluster:
            job = cluster.run(training_spec(
                "resnet18", model={"name": "resnet18", "stochastic_depth": 0.5}, sync_batch_norm=True,
                global_batch=16, max_steps=6, accumulation_steps=2, ema={"decay": 0.9},
                optimizer={"name": "lars", "learning_rate": 0.1, "momentum": 0.9, "exclude_norm_and_bias": True},
                schedule={"name": "step", "milestones": [0.001], "factor": 0.5},
                resources={"nodes": 2, "ranks_per_node": 1}))
            self.assertEqual(job["state"], "SUCCEEDED")
            # As torchvision's, with one input channel and ten classes.
            self.assertEqual(int(job["summary"]["parameters"]), 11175370)

    def test_custom_network(self):
        layers = [
            {"conv2d": {"out_channels": 8, "kernel": 3, "padding": 1, "bias": False}}, {"batch_norm2d": {}}, "relu",
            {"residual": {"layers": [{"conv2d": {"out_channels": 8, "kernel": 3, "padding": 1, "groups": 8}},
                                     {"batch_norm2d": {}}, "relu6"], "drop_probability": 0.2}},
            {"max_pool2d": {"kernel": 3, "stride": 2, "padding": 1}}, "adaptive_avg_pool2d", "flatten",
            {"dropout": {"probability": 0.1}}, {"linear": {}}]
        with Cluster(nodes=1) as cluster:
            job = cluster.run(training_spec("own", model={"layers": layers}, max_steps=20))
            self.assertEqual(job["state"], "SUCCEEDED")
            # 8*9 + 16 + 8*9 + 8 + 16 + 8*10 + 10
            self.assertEqual(int(job["summary"]["parameters"]), 274)

    def test_diverging_training_fails_without_restart(self):
        with Cluster(nodes=1) as cluster:
            job = cluster.run(training_spec("diverges", model={"name": "mlp"}, max_steps=200, restart={"max": 3},
                                            optimizer={"name": "sgd", "learning_rate": 1e12}), check=False)
            self.assertEqual(job["state"], "FAILED")
            self.assertEqual(int(job["generation"]), 1)
            self.assertIn("loss", job["first_failure"]["message"])
            self.assertIn("step", job["first_failure"]["message"])


class DataTest(unittest.TestCase):
    def test_cifar_format_resized_to_112(self):
        """Resizes 32 to 112 pixels, with images of Fashion-MNIST in CIFAR-10's format."""
        with Cluster(nodes=1, slots=2) as cluster:
            folder = cluster.directory / "cifar"
            subprocess.run([PYTHON, str(ROOT / "deploy/tools/fashion_mnist_to_cifar.py"),
                            "/usr/share/datasets/fashion-mnist", str(folder)], check=True, capture_output=True)
            for file in folder.glob("*.bin"):
                os.truncate(file, 64 * 3073)  # 64 images are enough here
            job = cluster.run(training_spec(
                "resized", model={"name": "mobilenet_v2"}, dataset={"name": "cifar10", "path": str(folder)},
                image_size=112, global_batch=8, max_steps=2, loader={"threads": 2},
                resources={"nodes": 1, "ranks_per_node": 2}))
            self.assertEqual(job["state"], "SUCCEEDED")
            # As torchvision's with ten classes.
            self.assertEqual(int(job["summary"]["parameters"]), 2236682)

    def test_jpeg_folder_with_corrupt_image(self):
        with Cluster(nodes=1) as cluster:
            folder = cluster.directory / "images"
            subprocess.run([PYTHON, str(ROOT / "tests/bench/make_jpeg_folder.py"), str(folder), "--train=24", "--val=8",
                            "--classes=3", "--size=90x70"], check=True, capture_output=True)
            spec = dict(model={"name": "resnet18"}, dataset={"name": "image_folder", "path": str(folder)},
                        image_size=64, global_batch=8, max_steps=6,
                        augment={"random_resized_crop": {}, "flip": True, "random_erasing": {}})
            job = cluster.run(training_spec("folder", **spec))
            self.assertEqual(job["state"], "SUCCEEDED")
            self.assertGreater(float(job["summary"]["test_loss"]), 0)

            damaged = sorted(pathlib.Path(folder).glob("train/*/*.jpg"))[5]
            damaged.write_bytes(damaged.read_bytes()[:200])
            job = cluster.run(training_spec("damaged", **spec), check=False)
            self.assertEqual(job["state"], "FAILED")
            self.assertEqual(int(job["exit_code"]), 66)
            self.assertEqual(int(job["generation"]), 1)
            self.assertIn(damaged.name, job["first_failure"]["message"])
