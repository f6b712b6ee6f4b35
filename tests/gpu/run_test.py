"""tests/gpu/run.sh with unpacked bundles: without a GPU, and with a fake GPU on the host."""

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
        """Unpacks the bundles and replaces their CUDA library with the fake that computes on the host."""
        folders = []
        for bundle in BUNDLES:
            with tarfile.open(bundle) as tar:
                tar.extractall(self.folder)
            folder = self.folder / bundle.name.removesuffix(".tar.xz")
            library = folder / "lib/libmuster-cuda.so"
            library.unlink()
            shutil.copy(binary("kernels/cuda/testing/libmuster-cuda-on-host.so"), library)
            folders.append(folder)
        return folders

    def test_rejects_unknown_arguments(self):
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

    def test_compare_losses_allows_rounding_growth(self):
        program = self.unpacked()[1] / "bin/compare_losses"

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

    def test_runs_parts(self):
        gpus = FakeGpus(self.folder, 1)
        nccl = self.folder / "nccl"
        nccl.mkdir()
        shutil.copy(binary("collectives/nccl/testing/libfake_nccl.so"), nccl / "libnccl.so.2")
        result = self.run_script(
            "--quick", "--part", "kernels", "--part", "sanitizer", "--part", "nccl", bundles=self.unpacked(),
            SETS="train.max_steps=24 train.global_batch=16", ALLREDUCE_MAX="1MiB", LIMIT="840", FAKE_NVML=str(gpus.path),
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
