"""tests/gpu/run.sh from unpacked bundles: on a machine without a GPU, and with a GPU that the host plays."""

import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import tempfile
import unittest

from tests.support.daemon import binary
from tests.support.fake_gpus import FakeGpus

ROOT = pathlib.Path().absolute()
BUNDLES = [ROOT / "deploy/muster.tar.xz", ROOT / "tests/gpu/muster-gpu-tests.tar.xz"]


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "results"

    def run_script(self, *arguments, bundles=BUNDLES, **environment):
        result = subprocess.run(
            [ROOT / "tests/gpu/run.sh", "--out", self.out, *arguments, *bundles], text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHON": "/bin/false", **environment})
        print(result.stdout)
        return result

    def unpacked(self):
        """The bundles with a CUDA library in them whose GPU is the host."""
        folders = []
        for bundle in BUNDLES:
            with tarfile.open(bundle) as tar:
                tar.extractall(self.folder)
            folder = self.folder / bundle.name.removesuffix(".tar.xz")
            library = folder / "lib/libmuster-cuda.so"
            library.unlink()
            shutil.copy(binary("kernels/cuda/libmuster-cuda-on-host.so"), library)
            folders.append(folder)
        return folders

    def test_what_it_does_not_know(self):
        self.assertEqual(self.run_script("--part", "speed").returncode, 64)
        self.assertEqual(self.run_script("--fast").returncode, 64)
        missing = self.run_script("--quick", bundles=["/none.tar.xz"])
        self.assertEqual(missing.returncode, 66)
        self.assertIn("no /none.tar.xz", missing.stdout)

    def test_without_a_gpu(self):
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("there is a GPU")
        result = self.run_script("--quick")
        self.assertEqual(result.returncode, 69)
        self.assertIn("run.sh: CUDA: no GPU: no driver: libcuda.so.1", result.stdout)

    def test_parts(self):
        gpus = FakeGpus(self.folder, 1)
        nccl = self.folder / "nccl"
        nccl.mkdir()
        shutil.copy(binary("collectives/nccl/testing/libfake_nccl.so"), nccl / "libnccl.so.2")
        result = self.run_script(
            "--quick", "--part", "kernels", "--part", "sanitizer", "--part", "nccl", bundles=self.unpacked(),
            SETS="train.max_steps=24 train.global_batch=16", ALLREDUCE_MAX="1MiB", FAKE_NVML=str(gpus.path),
            MUSTER_NVML_LIBRARY=str(binary("worker/gpu/testing/libfake_nvml.so")),
            MUSTER_CUDA_LIBRARY_PATH=f"{os.path.dirname(binary('kernels/cuda/testing/fakes/libcudnn.so.9'))}:{nccl}")
        results = json.loads((self.out / "results.json").read_text())
        self.assertEqual(result.returncode, 0)
        parts = results["parts"]
        self.assertEqual({name: part["state"].split(":")[0] for name, part in parts.items()},
                         {"quick": "passed", "kernels": "passed", "sanitizer": "skipped", "nccl": "passed"})
        self.assertTrue(parts["quick"]["found"]["agree"])
        self.assertTrue(parts["quick"]["found"]["learnt"])
        self.assertEqual(set(parts["kernels"]["found"].values()), {True})
        nccl = parts["nccl"]["found"]
        self.assertEqual(set(nccl["contract"].values()), {True})
        self.assertTrue(nccl["losses"]["agree"])
        self.assertLessEqual(nccl["survivor_seconds"], 2)
        self.assertGreater(nccl["allreduce"]["figures"][0]["busbw_gb_per_s"], 0)


if __name__ == "__main__":
    unittest.main()
