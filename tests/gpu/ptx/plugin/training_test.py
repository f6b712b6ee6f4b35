"""Train jobs with every parallel strategy, whose CUDA kernels are interpreted from their PTX, with fakes of cuDNN, cuBLASLt
and NCCL. Losses must be those of the CPU. Queued work runs late and in adversarial orders: a rank that does not wait for
its work computes with uninitialized or old data, and fails or diverges."""

import unittest

from tests.support.cluster import Cluster, binary
from tests.support.fake_gpus import FakeGpus
from tests.support.gpu_training import copied, make_images, rank_on_gpu, spec

STEPS = 5
# Relative difference of the losses. With bf16 a CPU's result depends on its instructions (the order of sums), and its
# rounding error of 2^-9 grows with each step.
FP32, BF16 = 2e-3, 5e-2
LAYERS = [{"conv2d": {"out_channels": 8, "kernel": 3, "padding": 1, "bias": False}}, "batch_norm2d", "relu",
          {"avg_pool2d": {"kernel": 2}}, {"conv2d": {"out_channels": 8, "kernel": 3, "padding": 1, "groups": 8}},
          "batch_norm2d", "relu", "adaptive_avg_pool2d", "flatten", {"linear": {"out_features": 8}}, "relu", "linear"]


def convolution(channels, kernel, stride=1):
    return {"conv2d": {"out_channels": channels, "kernel": kernel, "stride": stride, "padding": kernel // 2, "bias": False}}


def block(channels, stride=1, project=True):
    layers = [convolution(channels, 3, stride), "batch_norm2d", "relu", convolution(channels, 3), "batch_norm2d"]
    shortcut = [convolution(channels, 1, stride), "batch_norm2d"] if project else []
    return [{"residual": {"layers": layers, "shortcut": shortcut}}, "relu"]


# Overlapping max pooling, projected shortcuts, and one that skips pixels: their kernels are fused on GPUs only.
RESNET = [convolution(8, 3), "batch_norm2d", "relu", {"max_pool2d": {"kernel": 3, "stride": 2, "padding": 1}}, *block(8),
          *block(8, project=False), *block(16, stride=2), "adaptive_avg_pool2d", "flatten", "linear"]


def pipeline(micro_batches, **options):
    return {"name": "pipeline", "pipeline": {"stages": 2, "micro_batches": micro_batches, **options}}


class PtxTrainingTest(unittest.TestCase):
    def start(self, cluster, order):
        """Starts two nodes with two GPUs each."""
        rank = rank_on_gpu(cluster.directory / "programs", "tests/gpu/ptx/plugin/libmuster-cuda-ptx.so")
        libraries = copied(cluster.directory / "nvidia",
                           ("libnccl.so.2", binary("collectives/nccl/testing/libfake_nccl.so")),
                           ("libcudnn.so.9", binary("kernels/cuda/testing/fakes/libcudnn.so.9")),
                           ("libcublasLt.so.13", binary("kernels/cuda/testing/fakes/libcublasLt.so.13")))
        for node in ("node-1", "node-2"):
            machine = cluster.directory / f"machine-{node}"
            machine.mkdir()
            gpus = FakeGpus(machine, 2)
            for gpu in gpus.gpus:
                gpu["uuid"] += f"-{node}"
            gpus.save()
            cluster.start_worker(node, 2, [*gpus.flags(), f"--rank-binary={rank}"],
                                 env=gpus.environment({**cluster.environment(), "PTX_DEVICES": "2", "PTX_ORDER": str(order),
                                                       "XDG_CACHE_HOME": str(cluster.directory / "cache"),
                                                       "MUSTER_CUDA_LIBRARY_PATH": str(libraries)}))
        cluster.wait_for_nodes(2)
        folder = cluster.directory / "images"
        make_images(folder)
        return folder

    def train(self, cluster, name, folder, nodes=1, ranks=1, devices=1, device="gpu", layers=LAYERS, **train):
        # By default batch norm over the samples of all devices.
        job = spec(name, folder, device, **{"sync_batch_norm": True, **train})
        job["train"].update(model={"layers": layers}, image_size=16, max_steps=STEPS)
        job["resources"].update(nodes=nodes, ranks_per_node=ranks, devices_per_rank=str(devices))
        finished = cluster.run(job, "--losses", check=False)
        log = cluster.muster("logs", finished["job_id"]).stdout
        self.assertEqual(finished["state"], "SUCCEEDED", log)
        self.assertNotIn("ptx: ", log)
        self.assertNotIn("training without CUDA graphs", log)
        self.assertEqual("computes on cuda:0 PTX interpreter" in log, device == "gpu", log)
        losses = finished["summary"]["losses"]
        self.assertEqual(len(losses), STEPS)
        return losses

    def check(self, order, ways):
        """Trains in each way: name: train spec. "cpu" in it: the train spec of the CPU with the same losses."""
        with Cluster() as cluster:
            folder = self.start(cluster, order)
            on_cpu = {}
            for name, way in ways.items():
                way = dict(way)
                cpu, tolerance = way.pop("cpu", {}), way.pop("tolerance", FP32)
                expected = on_cpu.get(str(cpu)) or self.train(cluster, f"cpu-{name}", folder, device="cpu", **cpu)
                on_cpu[str(cpu)] = expected
                losses = self.train(cluster, name, folder, **way)
                for step, (one, other) in enumerate(zip(expected, losses)):
                    self.assertAlmostEqual(one, other, delta=tolerance * one, msg=f"{name}, step {step}")

    def test_strategies(self):
        self.check(0, {
            "one": {},
            "eager": {"cuda_graphs": "never"},
            "dp": {"devices": 2, "strategy": {"name": "dp"}},
            "ddp": {"ranks": 2, "strategy": {"name": "ddp"}},
            "zero1": {"ranks": 2, "strategy": {"name": "ddp", "shard_optimizer": True}},
            "hybrid": {"nodes": 2, "devices": 2, "strategy": {"name": "hybrid"}},
            # Batch norm sees one micro-batch at a time.
            "pipeline": {"ranks": 2, "sync_batch_norm": False, "strategy": pipeline(2),
                         "cpu": {"accumulation_steps": 2, "sync_batch_norm": False}},
            "o2": {"precision": "O2", "cpu": {"precision": "O2"}, "tolerance": BF16},
        })

    def test_residual_network(self):
        self.check(0, {
            "one": {"layers": RESNET, "cpu": {"layers": RESNET}},
            "ddp": {"layers": RESNET, "ranks": 2, "strategy": {"name": "ddp"}, "cpu": {"layers": RESNET}},
            "o2": {"layers": RESNET, "precision": "O2", "cpu": {"layers": RESNET, "precision": "O2"}, "tolerance": BF16},
        })

    def test_orders(self):
        for order in (1, 2):
            self.check(order, {
                "one": {},
                "ddp": {"ranks": 2, "strategy": {"name": "ddp"}},
                "pipeline": {"ranks": 2, "sync_batch_norm": False, "strategy": pipeline(2, schedule="gpipe"),
                             "cpu": {"accumulation_steps": 2, "sync_batch_norm": False}},
            })


if __name__ == "__main__":
    unittest.main()
