"""Train jobs in which one call of the CUDA runtime fails, with kernels interpreted from their PTX: the rank fails with the
documented exit code, or trains without what failed, and never publishes a checkpoint that a successful training would not."""

import unittest

from tests.support.cluster import Cluster, binary
from tests.support.fake_gpus import FakeGpus
from tests.support.gpu_training import copied, make_images, rank_on_gpu, spec

STEPS = 6
OUT_OF_MEMORY, LAUNCH_FAILURE = 2, 719
NO_DEVICE, FAILURE = 71, 1

# (function, number of the call that fails, its error, exit code). "execution" is the execution of queued work.
ONE_RANK = [
    ("execution", 5, LAUNCH_FAILURE, NO_DEVICE),
    ("execution", 60, LAUNCH_FAILURE, NO_DEVICE),
    ("cudaLaunchKernel", 1, LAUNCH_FAILURE, NO_DEVICE),
    ("cudaLaunchKernel", 30, LAUNCH_FAILURE, NO_DEVICE),
    ("cudaMemcpyAsync", 1, LAUNCH_FAILURE, NO_DEVICE),
    ("cudaMemcpyAsync", 20, LAUNCH_FAILURE, NO_DEVICE),
    # Clears memory that has just been allocated, so it counts as a failed allocation.
    ("cudaMemsetAsync", 2, LAUNCH_FAILURE, FAILURE),
    ("cudaMalloc", 3, OUT_OF_MEMORY, FAILURE),
    ("cudaHostAlloc", 2, OUT_OF_MEMORY, FAILURE),
    ("cudaEventRecord", 3, LAUNCH_FAILURE, NO_DEVICE),
    ("cudaEventSynchronize", 1, LAUNCH_FAILURE, NO_DEVICE),
    ("cudaStreamSynchronize", 3, LAUNCH_FAILURE, NO_DEVICE),
    ("cudaGraphInstantiate", 1, OUT_OF_MEMORY, 0),
    ("cudaGraphLaunch", 3, LAUNCH_FAILURE, NO_DEVICE),
]
# Calls of communicators. Those of the communicator's own thread fail as a collective does.
TWO_RANKS = [
    ("cudaEventQuery", 3, LAUNCH_FAILURE, FAILURE),
    ("cudaStreamWaitEvent", 4, LAUNCH_FAILURE, NO_DEVICE),
]


class PtxErrorsTest(unittest.TestCase):
    def start(self, cluster):
        rank = rank_on_gpu(cluster.directory / "programs", "tests/gpu/ptx/plugin/libmuster-cuda-ptx.so")
        libraries = copied(cluster.directory / "nvidia",
                           ("libnccl.so.2", binary("collectives/nccl/testing/libfake_nccl.so")),
                           ("libcudnn.so.9", binary("kernels/cuda/testing/fakes/libcudnn.so.9")),
                           ("libcublasLt.so.13", binary("kernels/cuda/testing/fakes/libcublasLt.so.13")))
        machine = cluster.directory / "machine"
        machine.mkdir()
        gpus = FakeGpus(machine, 2)
        cluster.start_worker("node-1", 2, [*gpus.flags(), f"--rank-binary={rank}"],
                             env=gpus.environment({**cluster.environment(), "PTX_DEVICES": "2",
                                                   "XDG_CACHE_HOME": str(cluster.directory / "cache"),
                                                   "MUSTER_CUDA_LIBRARY_PATH": str(libraries)}))
        cluster.wait_for_nodes(1)
        self.folder = cluster.directory / "images"
        make_images(self.folder)

    def train(self, cluster, name, ranks, fail="", steps=STEPS):
        """Returns the finished job, its log, and the model of each published checkpoint by step. A checkpoint that becomes
        due while another one is written is left out, except the last one."""
        checkpoints = cluster.directory / f"checkpoints-{name}"
        job = spec(name, self.folder, "gpu", checkpoint={"dir": str(checkpoints), "every_steps": 1, "keep": 20})
        job["train"].update(max_steps=steps, image_size=16)
        job["resources"]["ranks_per_node"] = ranks
        job["env"] = {"PTX_FAIL": fail}
        finished = cluster.run(job, check=False)
        published = {step.name.split(".")[0]: (step / "model.safetensors").read_bytes()
                     for step in checkpoints.glob("**/step-*") if (step / "model.safetensors").exists()}
        return finished, cluster.muster("logs", finished["job_id"]).stdout, published

    def check(self, ranks, failures):
        with Cluster() as cluster:
            self.start(cluster)
            expected = {}
            for steps in range(1, STEPS + 1):
                finished, log, published = self.train(cluster, f"none-{steps}", ranks, steps=steps)
                self.assertEqual(finished["state"], "SUCCEEDED", log)
                expected[f"step-{steps:08d}"] = published[f"step-{steps:08d}"]
            for function, call, error, code in failures:
                with self.subTest(function, call=call):
                    name = f"{function.lower()}-{call}"
                    finished, log, published = self.train(cluster, name, ranks, f"{function}:{call}:{error}")
                    self.assertIn(f"injected error {error}", log)
                    self.assertEqual(int(finished.get("exit_code", 0)), code, log)
                    self.assertEqual(finished["state"], "SUCCEEDED" if code == 0 else "FAILED", log)
                    self.assertEqual("training without CUDA graphs" in log, code == 0, log)
                    for step, model in published.items():
                        self.assertEqual(model, expected[step], step)
                    if code == 0:
                        self.assertIn(f"step-{STEPS:08d}", published)

    def test_one_rank(self):
        self.check(1, ONE_RANK)

    def test_two_ranks(self):
        self.check(2, TWO_RANKS)


if __name__ == "__main__":
    unittest.main()
