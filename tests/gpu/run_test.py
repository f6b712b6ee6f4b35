"""tests/gpu/run.sh with unpacked bundles: without a GPU, and with a fake GPU on the host."""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import unittest

from tests.support.daemon import binary
from tests.support.fake_gpus import FakeGpus

ROOT = pathlib.Path().absolute()
SCRIPT = ROOT / "tests/gpu/run.sh"
BUNDLES = [ROOT / "deploy/muster.tar.xz", ROOT / "tests/gpu/muster-gpu-tests.tar.xz"]
# Runs a program as NVIDIA's tool does; racecheck reports an error.
SANITIZER = """
[[ $1 == --tool && $3 == --error-exitcode ]] || exit 64
[[ $5 == */libexec/* ]] || exit 65
tool=$2
shift 4
"$@" || exit
[[ $tool != racecheck ]] || { echo "========= ERROR SUMMARY: 1 error"; exit 1; }
echo "========= ERROR SUMMARY: 0 errors"
"""


def setUpModule():
    """Unpacks the bundles, and replaces their CUDA library with the fake that computes on the host."""
    global DIRECTORY
    DIRECTORY = pathlib.Path(tempfile.mkdtemp(prefix="muster-gpu-test."))
    unittest.addModuleCleanup(shutil.rmtree, DIRECTORY)
    for bundle in BUNDLES:
        with tarfile.open(bundle) as tar:
            tar.extractall(DIRECTORY / "bundles")
    for folder in (DIRECTORY / "bundles").iterdir():
        (folder / "lib/libmuster-cuda.so").unlink()
        shutil.copy(binary("kernels/cuda/testing/libmuster-cuda-on-host.so"), folder / "lib/libmuster-cuda.so")
    (DIRECTORY / "nccl").mkdir()
    shutil.copy(binary("collectives/nccl/testing/libfake_nccl.so"), DIRECTORY / "nccl/libnccl.so.2")


class RunTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "results"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        # Hard links, so that a test can remove and replace programs.
        shutil.copytree(DIRECTORY / "bundles", self.folder / "bundles", copy_function=os.link)
        self.muster, self.tests = (self.folder / "bundles" / name for name in ("muster", "muster-gpu-tests"))
        self.bundles = [self.muster, self.tests]

    def environment(self, **changes):
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder), "PYTHON": "/bin/false",
                "TMPDIR": str(self.temporary), **changes}

    def fake_gpu(self, **changes):
        libraries = os.path.dirname(binary("kernels/cuda/testing/fakes/libcudnn.so.9"))
        return self.environment(FAKE_NVML=str(FakeGpus(self.folder, 1).path),
                                MUSTER_NVML_LIBRARY=str(binary("worker/gpu/testing/libfake_nvml.so")),
                                MUSTER_CUDA_LIBRARY_PATH=f"{libraries}:{DIRECTORY / 'nccl'}",
                                **changes)

    def run_script(self, *arguments, env=None, bundles=None):
        command = [SCRIPT, "--out", self.out, *arguments, *(self.bundles if bundles is None else bundles)]
        result = subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env=env or self.environment())
        print(result.stdout)
        return result

    def parts(self):
        return json.loads((self.out / "results.json").read_text())["parts"]

    def states(self):
        return {name: (part["state"], part["reason"]) for name, part in self.parts().items()}

    def archived(self):
        with tarfile.open(f"{self.out}.tar.gz") as tar:
            return set(tar.getnames())

    def inject(self, program, script):
        """Replaces a program by a Bash script, in which $REAL is the program."""
        folder = self.folder / "injected/bin"
        if not folder.exists():
            folder.mkdir(parents=True)
            self.bundles.append(folder.parent)
        real = next((b / "bin" / program for b in self.bundles if (b / "bin" / program).exists()), "")
        (folder / program).write_text(f"#!/usr/bin/env bash\nREAL={real}\n{script}\n")
        (folder / program).chmod(0o755)

    def keep_contract_tests(self, *names):
        for program in self.tests.glob("bin/*_contract_test"):
            if program.name not in names:
                program.unlink()

    def assert_nothing_left(self):
        """No process of the run is left, and no temporary file."""
        self.assertEqual(list(self.temporary.iterdir()), [])
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (process / "environ").read_bytes()
                self.assertNotIn(b"%s/muster-gpu." % str(self.temporary).encode(), environment, process)

    def test_rejects_unknown_arguments(self):
        self.assertEqual(self.run_script("--part", "speed").returncode, 64)
        self.assertEqual(self.run_script("--fast").returncode, 64)
        self.assertEqual(self.run_script(env=self.environment(PART_SECONDS="speed=3")).returncode, 64)
        missing = self.run_script("--quick", bundles=["/none.tar.xz"])
        self.assertEqual(missing.returncode, 66)
        self.assertIn("no /none.tar.xz", missing.stdout)

    def test_prints_help(self):
        result = self.run_script("--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("$LIMIT seconds (540)", result.stdout)

    def test_without_a_gpu(self):
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("there is a GPU")
        result = self.run_script("--quick", bundles=BUNDLES)
        self.assertEqual(result.returncode, 69)
        self.assertIn("run.sh: CUDA: no GPU: no driver: libcuda.so.1", result.stdout)
        self.assert_nothing_left()

    def test_without_a_library(self):
        self.inject("list_libraries", "echo 'CUDA: no libcudnn.so.9 in /none'; echo 'libz 1.2.13'; exit 1")
        result = self.run_script("--quick", env=self.fake_gpu())
        self.assertEqual(result.returncode, 69)
        self.assertIn("run.sh: CUDA: no libcudnn.so.9 in /none", result.stdout)
        self.assertIn("set MUSTER_CUDA_LIBRARY_PATH", result.stdout)
        self.assert_nothing_left()

    def list_libraries(self, path):
        return subprocess.run([self.tests / "bin/list_libraries"], env={"MUSTER_CUDA_LIBRARY_PATH": path}, text=True,
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
        program = self.tests / "bin/compare_losses"

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
        result = self.run_script(
            "--quick", "--part", "nccl", "--part", "kernels", "--part", "sanitizer",
            env=self.fake_gpu(SETS="train.max_steps=24 train.global_batch=16", ALLREDUCE_MAX="1MiB", LIMIT="840",
                              PART_SECONDS="nccl=400 kernels=400"))
        self.assertEqual(result.returncode, 0)
        self.assertEqual({name: state for name, (state, _) in self.states().items()},
                         {"quick": "passed", "nccl": "passed", "kernels": "passed", "sanitizer": "skipped"})
        parts = self.parts()
        self.assertIn("no compute-sanitizer", parts["sanitizer"]["reason"])
        losses = parts["quick"]["found"]["small_cnn"]
        self.assertTrue(losses["agree"])
        self.assertTrue(losses["learnt"])
        self.assertGreaterEqual(len(parts["kernels"]["found"]), 10)
        self.assertEqual(set(parts["kernels"]["found"].values()), {True})
        nccl = parts["nccl"]["found"]
        self.assertTrue(nccl["contract_test"])
        self.assertTrue(nccl["by-two"]["agree"])
        self.assertLessEqual(nccl["survivor_left_nccl_seconds"], 2)
        self.assertGreater(nccl["survivor_process_seconds"], 0)
        self.assertGreater(nccl["allreduce"]["figures"][0]["busbw_gb_per_s"], 0)
        archived = self.archived()
        for file in ("results.json", "summary.txt", "environment.txt", "quick/log", "quick/activation_contract_test.log",
                     "quick/small_cnn-gpu.json", "nccl/by-two.json", "nccl/kept/cluster/coordinator.log"):
            self.assertIn(f"results/{file}", archived)
        self.assertTrue([name for name in archived if name.startswith("results/quick/kept/small_cnn-gpu/")])
        self.assertFalse([name for name in archived if "token" in name])
        self.assert_nothing_left()

    def test_reports_what_fails_in_each_part(self):
        self.keep_contract_tests("activation_contract_test", "cast_contract_test")
        # Missing: quick's optimizer_contract_test. No GPU memory: bandwidth. The others fail or hang here.
        self.inject("muster", """
            case " $* " in
              *" --name small-cnn-gpu "*) [[ $* == *max_steps=20* ]] || { echo "injected failure" >&2; exit 3; } ;;
              *" --name resnet18-cpu "* | *" --name resnet18-bfloat16 "*) exit 4 ;;
              *" --name resnet50 "*) sleep 1000 ;;
              *" --name never-1 "*) kill -SEGV $$ ;;
              *" --name auto-1 "*) echo '"images_per_second": 7'; exit ;;
              *" --name resnet18-float16 "* | *" --name alone "*) exit 5 ;;
            esac
            exec "$REAL" "$@" """)
        self.inject("contract_test", "echo '[  FAILED  ] a test'; exit 1")
        self.inject("cast_contract_test", "kill -ABRT $$")
        self.inject("compute-sanitizer", SANITIZER)
        result = self.run_script(env=self.fake_gpu(
            SETS="train.max_steps=20 train.global_batch=16", LIMIT="600", PART_SECONDS="throughput=5", NCCL_CHECKS="none",
            FAKE_CUDA_LARGEST_ARRAY=str(200 << 20), FASHION_MNIST="/none"))
        self.assertEqual(result.returncode, 1)
        expected = {
            "quick": ("failed", "optimizer_contract_test: no such program"),
            "training": ("failed", "resnet18-cpu: exit status 4:  (and 2 more)"),
            "throughput": ("failed", "timed out after 5 s"),
            "graphs": ("failed", "never-1: exit status 139: "),
            "bandwidth": ("failed", "memory_bench: exit status 69: memory_bench: "),
            "nccl": ("failed", "contract_test: exit status 1: [  FAILED  ] a test (and 1 more)"),
            "kernels": ("failed", "cast_contract_test: exit status 134: "),
            "accuracy": ("skipped", "no /none; set FASHION_MNIST to the dataset's folder"),
            "sanitizer": ("failed", "racecheck-activation_contract_test: exit status 1: ========= ERROR SUMMARY: 1 error"),
        }
        states = self.states()
        self.assertEqual(list(states), list(expected))
        for part, (state, reason) in expected.items():
            with self.subTest(part):
                self.assertEqual(states[part][0], state)
                self.assertTrue(states[part][1].startswith(reason), states[part][1])
                self.assertRegex((self.out / "summary.txt").read_text(), rf"(?m)^{part} +\d+ s  {state} +\S.*$")
        self.assertIn("out of memory", states["bandwidth"][1])
        self.assertEqual(result.stdout.count((self.out / "summary.txt").read_text()), 1)
        # A part continues after a failure.
        parts = self.parts()
        self.assertTrue(parts["quick"]["found"]["small_cnn"]["agree"])
        self.assertEqual(parts["kernels"]["found"], {"activation_contract_test": True, "cast_contract_test": False})
        self.assertEqual(parts["sanitizer"]["found"]["initcheck-activation_contract_test"], True)
        self.assertLessEqual({f"results/{part}/log" for part in expected}, self.archived())
        self.assert_nothing_left()

    def accuracy(self, script):
        """Runs part accuracy with a program in place of `muster local`; returns its state, reason and results."""
        data = self.folder / "fashion-mnist"
        data.mkdir(exist_ok=True)
        self.inject("muster", f'[[ $1 == local ]] || exec "$REAL" "$@"\n{script}')
        shutil.rmtree(self.out, ignore_errors=True)
        self.run_script("--part", "accuracy", env=self.fake_gpu(FASHION_MNIST=str(data)))
        part = self.parts()["accuracy"]
        return part["state"], part["reason"], part["found"]

    def test_reports_accuracy(self):
        state, reason, _ = self.accuracy("echo 'no memory' >&2; exit 7")
        self.assertEqual((state, reason), ("failed", "muster local: exit status 7: no memory"))
        evaluation = '"evaluations": [\n"test_accuracy": %s,\n"training_seconds": 3.5\n]'
        state, reason, found = self.accuracy(f"printf '{evaluation % 0.91}'")
        self.assertEqual((state, reason), ("failed", "test accuracy 0.91; the target is 0.93"))
        self.assertIsNone(found["muster"]["training_seconds_to_0.93"])
        state, reason, found = self.accuracy(f"printf '{evaluation % 0.94}'")
        self.assertEqual((state, reason), ("passed", ""))
        self.assertEqual(found["muster"], {"test_accuracy": 0.94, "training_seconds_to_0.93": 3.5})

    def test_skips_what_has_no_time(self):
        self.inject("muster", '[[ $1 != local ]] || sleep 1000; exec "$REAL" "$@"')
        self.keep_contract_tests()
        begin = time.monotonic()
        result = self.run_script("--part", "training", "--part", "bandwidth", env=self.fake_gpu(LIMIT="30"))
        self.assertEqual(result.returncode, 0)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertEqual(self.states(), {"training": ("skipped", "no time"), "bandwidth": ("skipped", "no time")})
        self.assertIn("results/training/log", self.archived())
        self.assert_nothing_left()

    def test_skips_nccl_without_its_library(self):
        self.inject("list_libraries", "echo 'cuDNN 9.0.0'; echo 'NCCL: cannot open libnccl.so.2'")
        result = self.run_script("--part", "nccl", env=self.fake_gpu())
        self.assertEqual(result.returncode, 0)
        self.assertEqual(self.states(), {"nccl": ("skipped", "NCCL: cannot open libnccl.so.2")})

    def test_archives_results_when_interrupted(self):
        self.inject("muster", '[[ $1 != local ]] || { touch "$HOME/hangs"; sleep 1000; }; exec "$REAL" "$@"')
        with subprocess.Popen([SCRIPT, "--out", self.out, "--part", "training", "--part", "kernels", *self.bundles],
                              env=self.fake_gpu()) as process:
            while not (self.folder / "hangs").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(), 128 + signal.SIGTERM)
        self.assertEqual(self.states(), {"training": ("skipped", "interrupted"), "kernels": ("skipped", "interrupted")})
        self.assertIn("results/training/log", self.archived())
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
