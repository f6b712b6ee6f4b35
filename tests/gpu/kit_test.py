"""The programs of the kit outside the build tree, and its tests/gpu/run.sh: without a GPU, and on fake GPUs on the host."""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tarfile
import tempfile
import unittest

from tests.support.daemon import binary
from tests.support.fake_gpus import FakeGpus
from tests.support.gpu_run import GpuRunTest

KIT = pathlib.Path("tests/gpu/muster-gpu-kit.tar.xz").absolute()


def setUpModule():
    """Unpacks the kit, and replaces its CUDA library with the fake that computes on the host."""
    global DIRECTORY
    DIRECTORY = pathlib.Path(tempfile.mkdtemp(prefix="muster-gpu-test."))
    unittest.addModuleCleanup(shutil.rmtree, DIRECTORY)
    with tarfile.open(KIT) as tar:
        tar.extractall(DIRECTORY)
    library = DIRECTORY / "muster-gpu-kit/lib/libmuster-cuda.so"
    library.unlink()
    shutil.copy(binary("kernels/cuda/testing/libmuster-cuda-on-host.so"), library)
    (DIRECTORY / "nccl").mkdir()
    shutil.copy(binary("collectives/nccl/testing/libfake_nccl.so"), DIRECTORY / "nccl/libnccl.so.2")


class KitTest(GpuRunTest):
    def make_kit(self):
        # Hard links, so that a test can replace programs.
        shutil.copytree(DIRECTORY / "muster-gpu-kit", self.kit, copy_function=os.link)

    def fake_gpu(self, count=1, **changes):
        libraries = os.path.dirname(binary("kernels/cuda/testing/fakes/libcudnn.so.9"))
        return self.environment(FAKE_NVML=str(FakeGpus(self.folder, count).path), FAKE_GPUS=str(count),
                                MUSTER_NVML_LIBRARY=str(binary("worker/gpu/testing/libfake_nvml.so")),
                                MUSTER_CUDA_LIBRARY_PATH=f"{libraries}:{DIRECTORY / 'nccl'}",
                                **changes)

    SMALL = "train.max_steps=12 train.global_batch=16 train.image_size=32"

    def test_runs_on_one_gpu(self):
        # The other programs are tests of their own in kernels/contract.
        for kernel in ("batch_norm", "convolution", "depthwise_convolution", "pooling"):
            self.write_program(self.kit / f"bin/{kernel}_contract_test", "echo '[  PASSED  ] 1 test.'")
        result = self.run_script("--part", "contracts", "--part", "nccl", "--part", "memory", "--part", "jpeg",
                                 env=self.fake_gpu(SETS=self.SMALL, JPEGS="40", ALLREDUCE_MAX="1MiB", LIMIT="840",
                                                   PART_SECONDS="nccl=400 jpeg=200 contracts=200"))
        self.assertEqual(result.returncode, 0)
        self.assertEqual({name: state for name, (state, _) in self.states().items()},
                         {"contracts": "passed", "nccl": "passed", "memory": "skipped", "jpeg": "passed"})
        parts = self.parts()
        self.assertIn("no compute-sanitizer", parts["memory"]["reason"])
        self.assertTrue(parts["contracts"]["found"]["cast_contract_test"])
        nccl = parts["nccl"]["found"]
        self.assertTrue(nccl["contract_test"])
        self.assertTrue(nccl["by-two"]["agree"])
        self.assertTrue(nccl["by-two"]["learnt"])
        self.assertLessEqual(nccl["survivor_left_nccl_seconds"], 2)
        self.assertGreater(nccl["survivor_process_seconds"], 0)
        self.assertGreater(nccl["allreduce"]["figures"][0]["busbw_gb_per_s"], 0)
        self.assertEqual(parts["jpeg"]["found"]["mobilenet_v2"]["loader_threads"], max(1, min(17, os.cpu_count()) - 1))
        archived = self.archived()
        self.assertIn("results/nccl/kept/cluster/coordinator.log", archived)
        self.assertTrue([name for name in archived if name.startswith("results/nccl/kept/alone/")])
        self.assertFalse([name for name in archived if "token" in name])
        self.assert_nothing_left()

    def test_runs_on_two_machines(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        env = self.fake_gpu(2, SETS=self.SMALL, LIMIT="900", PART_SECONDS="nodes=400 scaling=400")
        (self.folder / "machine-2").mkdir()
        gpus = FakeGpus(self.folder / "machine-2", 2)
        for gpu in gpus.gpus:
            gpu["uuid"] += "-of-machine-2"
        gpus.save()
        with subprocess.Popen(self.command("--part", "scaling", "--part", "nodes", "--listen", address), env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as first:
            output = []
            for line in first.stdout:
                output.append(line)
                if " --join " in line:
                    break
            second = subprocess.Popen([self.script, "--out", self.folder / "second", *line.split()[-3:]],
                                      env=dict(env, FAKE_NVML=str(gpus.path)))
            output += first.stdout.readlines()
            print("".join(output))
            self.assertEqual(first.wait(), 0)
        self.assertEqual(second.wait(60), 0)
        self.assertEqual(self.states(), {"scaling": ("passed", ""), "nodes": ("passed", "")})
        found = self.parts()["nodes"]["found"]
        self.assertTrue(found["two-nodes"]["agree"])
        self.assertGreater(found["nodes"]["speedup"], 0)
        self.assertFalse((self.folder / "common").exists())
        self.assert_nothing_left()

    def test_without_a_gpu(self):
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("there is a GPU")
        # A packed bundle, as bazel-bin has it.
        result = self.run_script("--part", "training", KIT)
        self.assertEqual(result.returncode, 69)
        self.assertIn("run.sh: CUDA: no GPU: no driver: libcuda.so.1", result.stdout)
        self.assert_nothing_left()

    def list_libraries(self, path):
        return subprocess.run([self.kit / "bin/list_libraries"], env={"MUSTER_CUDA_LIBRARY_PATH": path}, text=True,
                              check=False, stdout=subprocess.PIPE)

    def test_lists_libraries(self):
        found = self.list_libraries(self.fake_gpu()["MUSTER_CUDA_LIBRARY_PATH"])
        self.assertEqual(found.returncode, 0)
        self.assertRegex(found.stdout, r"^cuDNN \d+\.\d+\.\d+\ncuBLASLt found\nlibz \S+\nNCCL \S+\n$")

    def test_lists_missing_libraries(self):
        with contextlib.suppress(OSError):
            ctypes.CDLL("libcudnn.so.9")
            self.skipTest("there is a cuDNN")
        missing = self.list_libraries("/none")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("CUDA: no libcudnn.so.9 in /none", missing.stdout)

    def test_compare_losses_allows_rounding_growth(self):
        program = self.kit / "bin/compare_losses"

        def job(name, differences):
            losses = [2.0 - 0.1 * i + difference for i, difference in enumerate(differences)]
            path = self.folder / f"{name}.json"
            path.write_text(json.dumps({"summary": {"losses": losses}}))
            return path

        def compare(*arguments):
            result = subprocess.run([program, *arguments], text=True, check=False, stdout=subprocess.PIPE)
            return result.returncode, json.loads(result.stdout)

        zeros = [0.0] * 8
        stable, perturbed = job("stable", zeros), job("perturbed", [0, 0, 0, 0, 1e-3, 0, 0, 0])
        late, early = job("late", zeros[:6] + [5e-3, 0]), job("early", [0, 5e-3] + zeros[:6])
        self.assertEqual(compare(stable, late, "1e-4", stable, perturbed)[0], 0)
        status, found = compare(stable, early, "1e-4", stable, perturbed)
        self.assertEqual((status, found["at_step"]), (1, 2))
        self.assertEqual(compare(stable, late, "1e-4")[0], 1)
        self.assertEqual(compare("--end", stable, early, "1e-4")[0], 0)
        self.assertEqual(compare("--end", stable, late, "1e-4")[0], 1)


if __name__ == "__main__":
    unittest.main()
