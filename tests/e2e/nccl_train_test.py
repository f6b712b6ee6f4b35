"""Train jobs that exchange gradients with NCCL, with unique ids distributed by the coordinator: real daemons, fake GPUs
and a fake NCCL (tests/support/gpu_training.py, collectives/nccl/testing/fake_nccl.cc)."""

import os
import signal
import time
import unittest

from tests.support.cluster import Cluster, binary, wait_until
from tests.support.fake_gpus import FakeGpus
from tests.support.gpu_training import copied, make_images, rank_on_host_gpu, spec


class NcclTrainTest(unittest.TestCase):
    def start(self, cluster, nodes, gpus_each=1):
        """Starts workers with distinct fake GPUs and creates a folder of images."""
        rank = rank_on_host_gpu(cluster.directory / "programs")
        libraries = copied(cluster.directory / "nvidia",
                           ("libnccl.so.2", binary("collectives/nccl/testing/libfake_nccl.so")))
        for node in nodes:
            machine = cluster.directory / f"machine-{node}"
            machine.mkdir()
            gpus = FakeGpus(machine, gpus_each)
            for gpu in gpus.gpus:
                gpu["uuid"] += f"-{node}"
            gpus.save()
            cluster.start_worker(node, gpus_each, [*gpus.flags(), f"--rank-binary={rank}"],
                                 env=gpus.environment({**cluster.environment(),
                                                       "MUSTER_CUDA_LIBRARY_PATH": str(libraries)}))
        cluster.wait_for_nodes(len(nodes))
        folder = cluster.directory / "images"
        make_images(folder)
        return folder

    def spec(self, name, folder, nodes, ranks_per_node, **train):
        # Batch norm over the samples of all ranks.
        job = spec(name, folder, "gpu", sync_batch_norm=True, **train)
        job["resources"].update(nodes=nodes, ranks_per_node=ranks_per_node)
        return job

    def test_losses_match_single_rank(self):
        with Cluster() as cluster:
            folder = self.start(cluster, ["node-1", "node-2"], gpus_each=2)
            losses = {}
            for name, nodes, ranks in (("one", 1, 1), ("one-node", 1, 2), ("two-nodes", 2, 1), ("four", 2, 2)):
                job = cluster.run(self.spec(name, folder, nodes, ranks), "--losses")
                self.assertEqual(job["state"], "SUCCEEDED")
                losses[name] = job["summary"]["losses"]
                log = cluster.muster("logs", job["job_id"]).stdout
                self.assertEqual("reducing gradients with NCCL 2.28.9" in log, nodes * ranks > 1, log)
            self.assertEqual(len(losses["one"]), 30)
            self.assertLess(losses["one"][-1], 0.8 * losses["one"][0])
            for name in ("one-node", "two-nodes", "four"):
                for step, (one, other) in enumerate(zip(losses["one"], losses[name])):
                    self.assertAlmostEqual(one, other, delta=1e-4 * one, msg=f"{name}, step {step}")

    def test_recovers_from_killed_rank(self):
        with Cluster() as cluster:
            folder = self.start(cluster, ["node-1", "node-2"])
            job = self.spec("killed", folder, 2, 1,
                            checkpoint={"dir": str(cluster.directory / "ckpt-{node}"), "every_steps": 50})
            job["train"]["max_steps"] = 400
            job["restart"] = {"max": 1}
            job = cluster.submit(job)
            cluster.wait_for_step(job, 120)
            survivor = cluster.rank_pids("node-1")[0]
            os.kill(cluster.rank_pids("node-2")[0], signal.SIGKILL)
            killed = time.monotonic()
            wait_until(lambda: survivor not in cluster.rank_pids("node-1"), 10, "the survivor ends")
            self.assertLess(time.monotonic() - killed, 2)
            finished = cluster.wait(job)
            self.assertEqual((finished["state"], int(finished["generation"])), ("SUCCEEDED", 2))
            self.assertEqual(finished["first_failure"]["node"], "node-2")
            self.assertEqual(int(finished["first_failure"]["exit"]["signal"]), 9)
            self.assertGreaterEqual(int(finished["summary"]["resumed_from_step"]), 100)

    def test_backend_must_match_device(self):
        with Cluster() as cluster:
            folder = self.start(cluster, ["node-1"], gpus_each=2)
            on_cpu = cluster.write_spec(dict(self.spec("cpu", folder, 1, 1), backend="nccl",
                                             resources={"nodes": 1, "ranks_per_node": 1, "device": "cpu"}))
            refused = cluster.muster("submit", on_cpu, check=False)
            self.assertIn("nccl requires GPUs", refused.stderr)
            by_processes = cluster.run(dict(self.spec("shm", folder, 1, 2), backend="shm"))
            self.assertNotIn("reducing gradients with NCCL", cluster.muster("logs", by_processes["job_id"]).stdout)


if __name__ == "__main__":
    unittest.main()
