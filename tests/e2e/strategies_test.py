"""Every parallel strategy trains identically, with real coordinators, workers and ranks."""

import json
import unittest

from tests.support.cluster import Cluster, training_spec

STEPS = 50
BATCH = 64


def strategy(name, **options):
    return {"strategy": {"name": name, **options}}


def on(nodes=1, ranks=1, devices=1):
    return {"resources": {"nodes": nodes, "ranks_per_node": ranks, "devices_per_rank": str(devices)}}


PLAIN = {"model": {"name": "small_cnn", "batch_norm": False}}
# Average instead of max pooling: which of two nearly equal pixels is larger depends on rounding,
# after which trainings with batch norm diverge.
SYNCHRONISED = {
    "model": {"layers": [
        {"conv2d": {"out_channels": 32, "kernel": 3, "padding": 1, "bias": False}}, "batch_norm2d", "relu",
        {"avg_pool2d": {"kernel": 2}},
        {"conv2d": {"out_channels": 64, "kernel": 3, "padding": 1, "bias": False}}, "batch_norm2d", "relu",
        {"avg_pool2d": {"kernel": 2}}, "flatten", {"linear": {"out_features": 128}}, "relu", "linear"]},
    "optimizer": {"name": "sgd", "learning_rate": 0.01},
    "sync_batch_norm": True}
CONTRASTIVE = {"model": {"name": "small_cnn", "batch_norm": False}, "augment": {"flip": True, "crop_padding": 2}}


class StrategiesTest(unittest.TestCase):
    def train(self, cluster, **train):
        train = {"max_steps": STEPS, "global_batch": BATCH,
                 "optimizer": {"name": "sgd", "learning_rate": 0.01, "momentum": 0.9}, **train}
        job = cluster.run(training_spec("strategy", **train), "--losses")
        self.assertEqual(job["state"], "SUCCEEDED", job)
        summary = job["summary"]
        self.assertEqual(len(summary["losses"]), train["max_steps"])
        self.assertEqual(int(summary.get("differing_replicas", 0)), 0)
        return summary

    def assert_same_curve(self, summary, expected, tolerance, what):
        worst = max(abs(a - b) for a, b in zip(summary["losses"], expected["losses"]))
        self.assertLess(worst, tolerance, what)
        print(f"{what}: at most {worst:.1e} apart")

    def test_strategies_train_identically(self):
        ways = {
            "ddp, 2 ranks": {**strategy("ddp"), **on(ranks=2)},
            "ddp, 2 nodes of 2 ranks": {**strategy("ddp"), **on(nodes=2, ranks=2)},
            "ddp, 2 ranks, sharded": {**strategy("ddp", shard_optimizer=True), **on(ranks=2)},
            "ddp, 2 nodes of 2 ranks, sharded": {**strategy("ddp", shard_optimizer=True), **on(nodes=2, ranks=2)},
            "dp, 2 devices": {**strategy("dp"), **on(devices=2)},
            "dp, 3 devices": {**strategy("dp"), **on(devices=3)},
            "hybrid, 2 nodes of 2 devices": {**strategy("hybrid"), **on(nodes=2, devices=2)},
        }
        with Cluster(nodes=2, slots=4) as cluster:
            for kind, model in (("no batch norm", PLAIN), ("synchronised batch norm", SYNCHRONISED)):
                alone = self.train(cluster, **model)
                self.assertLess(alone["losses"][-1], alone["losses"][0])
                for what, way in ways.items():
                    self.assert_same_curve(self.train(cluster, **model, **way), alone, 1e-4, f"{kind}: {what}")

    def test_parameters_without_a_gradient(self):
        """Stochastic depth drops each of two branches with probability 0.5."""
        convolution = {"conv2d": {"out_channels": 8, "kernel": 3, "padding": 1}}
        branch = {"residual": {"layers": [convolution, "relu", convolution], "drop_probability": 0.5}}
        left_out = {"model": {"layers": [convolution, "relu", {"avg_pool2d": {"kernel": 2}}, branch, "relu", branch, "relu",
                                         {"avg_pool2d": {"kernel": 2}}, "flatten", "linear"]}, "max_steps": 12}
        ways = {
            "ddp": {**strategy("ddp"), **on(ranks=2)},
            "sharded": {**strategy("ddp", shard_optimizer=True), **on(nodes=2, ranks=1)},
            "dp": {**strategy("dp"), **on(devices=2)},
            "hybrid": {**strategy("hybrid"), **on(nodes=2, devices=2)},
            "pipeline": {**strategy("pipeline", pipeline={"stages": 2, "micro_batches": 4}), **on(ranks=2)},
        }
        with Cluster(nodes=2, slots=2) as cluster:
            alone = self.train(cluster, **left_out)
            for what, way in ways.items():
                self.assert_same_curve(self.train(cluster, **left_out, **way), alone, 1e-4, what)
            always = self.train(cluster, **json.loads(json.dumps(left_out).replace("0.5", "0.0")))
            with self.assertRaises(AssertionError):
                self.assert_same_curve(always, alone, 1e-3, "no branch was dropped")

    def test_hybrid_on_one_node_is_dp(self):
        """Both give the same bits, also with batch norm over each device's own samples."""
        model = {"model": {"name": "small_cnn"}, "max_steps": 10}
        with Cluster(nodes=1, slots=2) as cluster:
            dp = self.train(cluster, **model, **strategy("dp"), **on(devices=2))
            hybrid = self.train(cluster, **model, **strategy("hybrid"), **on(devices=2))
            ddp = self.train(cluster, **model, **strategy("ddp"), **on(ranks=2))
        self.assertEqual(hybrid["weights_digest"], dp["weights_digest"])
        self.assertEqual(hybrid["losses"], dp["losses"])
        # The ranks of ddp process the same samples as the devices of dp.
        self.assert_same_curve(ddp, dp, 1e-4, "ddp with batch norm over each rank's samples")

    def test_optimizer_state_is_sharded(self):
        ways = {"one node": on(ranks=2), "two nodes": on(nodes=2, ranks=2)}
        with Cluster(nodes=2, slots=4) as cluster:
            for what, way in ways.items():
                whole = self.train(cluster, max_steps=5, **PLAIN, **strategy("ddp"), **way)
                sharded = self.train(cluster, max_steps=5, **PLAIN, **strategy("ddp", shard_optimizer=True), **way)
                everything = int(whole["devices"][0]["optimizer_bytes"])
                held = [int(use["optimizer_bytes"]) for use in sharded["devices"]]
                self.assertEqual(len(held), len(whole["devices"]))
                self.assertEqual(sum(held), everything, what)
                self.assertLess(max(held) - min(held), 4096, what)

    def test_scope_of_negatives(self):
        def contrast(cluster, negatives, way):
            objective = {"objective": {"name": "nt_xent", "negatives": negatives}}
            return self.train(cluster, max_steps=20, **CONTRASTIVE, **objective, **way)

        ddp = {**strategy("ddp"), **on(nodes=2, ranks=2)}
        dp = {**strategy("dp"), **on(devices=4)}
        hybrid = {**strategy("hybrid"), **on(nodes=2, devices=2)}
        with Cluster(nodes=2, slots=4) as cluster:
            everywhere = contrast(cluster, "global", ddp)
            self.assert_same_curve(contrast(cluster, "global", dp), everywhere, 1e-5, "dp, negatives: global")
            self.assert_same_curve(contrast(cluster, "global", hybrid), everywhere, 1e-5, "hybrid, negatives: global")
            # One process holds all samples of its node, like the ranks of a node together.
            of_node = contrast(cluster, "node", hybrid)
            self.assert_same_curve(contrast(cluster, "node", ddp), of_node, 1e-5, "ddp, negatives: node")
            # Half as many negatives.
            self.assertLess(of_node["losses"][0], everywhere["losses"][0] - 0.5)

    def test_reports_step_phases(self):
        with Cluster(nodes=1, slots=2) as cluster:
            dp = self.train(cluster, **PLAIN, **strategy("dp"), **on(devices=2))
            ddp = self.train(cluster, **PLAIN, **strategy("ddp"), **on(ranks=2))
        self.assertEqual(dp["strategy"], "dp")
        parts = {part["name"]: part.get("seconds", 0) for part in dp["parts"]}
        self.assertEqual(list(parts), ["scatter", "replicate", "forward", "gather", "loss", "scatter_gradient",
                                       "backward", "reduce", "exchange", "update"])
        self.assertNotIn("parts", ddp)
        # The phases make up the step, except for waiting for data and gaps between phases, which are long on a busy
        # machine.
        self.assertLess(sum(parts.values()), dp["median_step_seconds"] * 1.1)
        self.assertGreater(sum(parts.values()), dp["median_step_seconds"] * 0.5)
        self.assertGreater(parts["backward"], parts["gather"])

        first, second = dp["devices"]
        self.assertEqual([int(first.get("rank", 0)), int(second.get("rank", 0))], [0, 0])
        self.assertEqual([int(use.get("rank", 0)) for use in ddp["devices"]], [0, 1])
        self.assertEqual({use["node"] for use in dp["devices"] + ddp["devices"]}, {"node-1"})
        gathered = int(first["gathered_bytes"])
        self.assertGreaterEqual(gathered, BATCH * 28 * 28 * 4)
        self.assertEqual(int(second.get("gathered_bytes", 0)), 0)
        self.assertGreater(int(first["optimizer_bytes"]), 0)
        self.assertEqual(int(second.get("optimizer_bytes", 0)), 0)
        for use in dp["devices"] + ddp["devices"]:
            self.assertGreater(int(use["activation_bytes"]), 0)
            self.assertGreater(use["busy_seconds"], 0)
            self.assertLess(use["busy_seconds"], dp["median_step_seconds"] + ddp["median_step_seconds"])
