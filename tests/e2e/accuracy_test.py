"""Checks that the recipes of deploy/examples reach their documented accuracy. Takes minutes to an hour."""

import json
import unittest

from tests.support.cluster import ROOT, Cluster

EXAMPLES = ROOT / "deploy/examples"


class AccuracyTest(unittest.TestCase):
    def train(self, recipe, seconds, *overrides):
        with Cluster(nodes=1, slots=2) as cluster:
            words = [word for override in overrides for word in ("--set", override.format(dir=cluster.directory))]
            out = cluster.muster("run", str(EXAMPLES / recipe), "-o", "json", *words, timeout=seconds).stdout
        summary = json.loads(out)["summary"]
        print(f"{recipe}: test accuracy {summary['test_accuracy']}, {summary['images_per_second']:.0f} images/s")
        return summary["test_accuracy"]

    def test_small_cnn_augmented(self):
        accuracy = self.train("small_cnn_augmented.yaml", 1200, "train.tensorboard.dir={dir}/tensorboard")
        self.assertGreaterEqual(accuracy, 0.925)

    def test_resnet18(self):
        accuracy = self.train("resnet18_fashion_mnist.yaml", 3 * 3600, "train.checkpoint.dir={dir}/checkpoints")
        self.assertGreaterEqual(accuracy, 0.935)
