"""tests/gpu/run.sh with fake programs: order, limits, continuation, archive and report; tests/gpu/prepare.sh."""

import getpass
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import unittest

from tests.support.gpu_run import PARTS, GpuRunTest

ROOT = pathlib.Path().absolute()
# Those of a first call, and of a second one.
FIRST, REST = PARTS[:9], PARTS[9:]
SEVERAL_GPUS = {"links", "scaling", "nodes"}
FIRST_KERNELS = ("batch_norm", "pooling", "cast", "depthwise_convolution", "image_transform", "convolution")
OTHER_KERNELS = ("optimizer", "resize")

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
PASSES = "echo '[       OK ] Shapes/Test.Case/cuda (1 ms)'; echo '[  PASSED  ] 1 test.'"
JOB = {"summary": {"images_per_second": 5000.5, "data_wait_seconds": 0.0001, "median_step_seconds": 0.05, "queue_seconds": 5e-5,
                   "differing_replicas": 0, "losses": [2.0, 1.5, 1.25, 1.0], "evaluations": [
                       {"test_accuracy": 0.94, "training_seconds": 3.5}]}}
PLAN = {"operations": [
    {"kind": "conv2d", "forward_us": 100, "backward_us": 200, "forward_work": {"us": 60}, "backward_work": {"us": 90}},
    {"kind": "batch_norm2d + relu", "forward_us": 40, "backward_us": 60, "forward_work": {"us": 35}, "backward_work": {"us": 45}},
    {"kind": "conv2d", "forward_us": 10, "backward_us": 20, "forward_work": {"us": 6}, "backward_work": {"us": 9}}],
    "times": {"step_us": 440, "objective_us": 4, "optimizer_us": 6}, "work": {"optimizer": {"us": 5}}}
TORCH = {"images_per_second": 1500, "torch": "2.11.0"}


class FakeKitTest(GpuRunTest):
    """Runs of fake programs, which take no time."""

    def make_kit(self):
        for folder in ("bin", "libexec", "tests/gpu"):
            (self.kit / folder).mkdir(parents=True)
        for script in (ROOT / "tests/gpu").glob("*.sh"):
            shutil.copy(script, self.kit / "tests/gpu")
        (self.folder / "job.json").write_text(json.dumps(JOB, indent=1))
        (self.folder / "plan.json").write_text(json.dumps(PLAN, indent=1))
        self.muster()
        for kernel in (*FIRST_KERNELS, *OTHER_KERNELS):
            self.program(f"{kernel}_contract_test", PASSES)
            self.write_program(self.kit / f"libexec/{kernel}_contract_test", PASSES)
        self.program("contract_test", PASSES)
        for program in ("make_cifar10", "make_jpegs"):
            self.program(program, "mkdir -p $1")
        self.program("muster-rank", "exit 1")
        for daemon in ("muster-coordinator", "muster-worker"):
            self.program(daemon, "echo started >&2; echo 'listening grpc=127.0.0.1:1'; exec sleep 1000")
        self.program("list_libraries", "echo 'cuDNN 9.19.0'; echo 'NCCL 2.28.9'")
        self.program("compare_losses", 'echo \'{"agree": true, "largest_difference": 0.00012}\'')
        self.program("allreduce_bench", 'echo \'{"figures": [{"bytes": 65536, "time_us": 21, "busbw_gb_per_s": 3.1}]}\'')
        self.memory_bench('echo \'{"kernels": [{"name": "sgd", "share_of_copy": 0.94, "target": 0.85}, {"name": "cast", "share_of_copy": 0.8, "target": 0.85}]}\'')

    def memory_bench(self, script):
        """The program finds a GPU, and runs `script` as its benchmark."""
        self.program("memory_bench", f"""
            [[ " $* " != *" --megabytes=1 "* ]] || {{ echo '{{"device": "cuda:0 NVIDIA H100 80GB HBM3"}}'; exit; }}
            {script}""")

    def setUp(self):
        super().setUp()
        self.tool("compute-sanitizer", SANITIZER.replace("tool != racecheck", "tool != none"))
        self.python = self.tool("python3", f"""
            case "$*" in
              *torch_gpu.py*) echo warming up; echo '{json.dumps(TORCH)}' ;;
              *torch_accuracy.py*) echo '{{"test_accuracy": 0.93}}' ;;
            esac""")
        self.data = self.folder / "fashion-mnist"
        self.data.mkdir()

    def program(self, name, script):
        """A program of the kit."""
        return self.write_program(self.kit / "bin" / name, script)

    def muster(self, before=""):
        """Every job and plan succeeds at once, after the script `before`."""
        self.program("muster", f"""
            {before}
            case "$1" in
              local | run) while [[ $1 != --keep && $# -gt 1 ]]; do shift; done
                 [[ $1 != --keep ]] || {{ mkdir -p $2; echo "I rank: loader threads: 15" >$2/rank.log; }}
                 cat $HOME/job.json ;;
              spec) cat $HOME/plan.json ;;
              node) echo '"node-1" "node-2"' ;;
              version) echo 0.1.0 ;;
            esac""")

    def dry(self, *arguments, gpus=1, **env):
        env = {"PYTHON": str(self.python), "FASHION_MNIST": str(self.data), "NCCL_CHECKS": "by-two allreduce", **env}
        return self.run_script(*arguments, env=self.environment(FAKE_GPUS=str(gpus), **env))

    def test_runs_all_parts_in_order(self):
        result = self.dry(gpus=2)
        self.assertEqual(result.returncode, 0)
        self.assertEqual(self.states(), {part: ("passed", "") for part in PARTS})
        self.assertEqual(list(self.parts()), PARTS)
        self.assertEqual(re.findall(r"(?m)^== (\w+)$", result.stdout), PARTS)
        found = {name: part["found"] for name, part in self.parts().items()}
        self.assertEqual(set(found["contracts"]), {f"{kernel}_contract_test" for kernel in (
            "batch_norm", "pooling", "cast", "depthwise_convolution", "image_transform", "convolution")})
        self.assertEqual(set(found["memory"]), {"initcheck-batch_norm_contract_test", "memcheck-batch_norm_contract_test"})
        self.assertFalse(set(found["kernels"]) & set(found["contracts"]))
        for model in ("resnet50", "mobilenet_v2"):
            self.assertEqual(found["throughput"][model]["runs"], [5000.5] * 3)
            # Without the samples of an idle GPU.
            self.assertEqual(found["throughput"][f"{model}-clocks"],
                             {"sm_mhz": 1755, "memory_mhz": 2619, "watts": 702, "celsius": 61, "samples": 3})
            self.assertEqual(found["throughput"][f"{model}-plan"], {"step_us": 440})
            self.assertEqual(set(found["torch"][f"{model}-torch"]["torch"]), {"eager", "default"})
            self.assertEqual(found["torch"][f"{model}-torch"]["to_best"], 3.334)
            self.assertEqual(found["jpeg"][model]["loader_threads"], 15)
        self.assertEqual(found["links"]["peer_access"], {"pairs": 1, "with_peer_access": 1})
        self.assertEqual(found["scaling"]["scaling"], {"one": 5000.5, "two": 5000.5, "speedup": 1})
        self.assertTrue(found["nodes"]["two-nodes"]["agree"])
        archived = self.archived()
        for file in ("results.json", "summary.txt", "environment.txt", "contracts/log", "throughput/explain-resnet50.json",
                     "nccl/by-two.json", "nccl/kept/cluster/coordinator.log"):
            self.assertIn(f"results/{file}", archived)
        self.assertFalse([name for name in archived if "token" in name])
        self.assert_nothing_left()

        rows = subprocess.run([ROOT / "tests/gpu/report.py", f"{self.out}.tar.gz"], text=True, check=True,
                              stdout=subprocess.PIPE).stdout
        print(rows)
        device, date = self.parts()["throughput"]["device"], self.parts()["throughput"]["date"]
        self.assertIn("| ResNet-50 224², batch 256, bfloat16 | 5,000 images/s (5,000 to 5,000 in 3 runs), waits for data 0.2 % of a "
                      f"step, host 50 us | {device} | 1755 MHz, memory 2619 MHz, 702 W, at most 61 °C | {date} | `throughput` |", rows)
        self.assertIn("| ResNet-50 against PyTorch | 3.33 of the best of PyTorch's forms (eager 1,500, default 1,500 images/s), 3.33 of "
                      "eager; targets 1.3 and 1.3 |", rows)
        self.assertIn("| sgd | 0.94 of a copy; target 0.85 |", rows)
        self.assertIn("| cast | 0.80 of a copy; target 0.85: falls short |", rows)
        self.assertIn("| test programs | 6 of 6 pass |", rows)
        self.assertIn("| conv2d | 0.33 | 0.17 | 2.00 |\n| batch_norm2d + relu | 0.10 | 0.08 | 1.25 |", rows)
        self.assertIn("| optimizer | 0.01 | 0.01 | 1.20 |", rows)

    def test_needs_neither_pytorch_nor_several_gpus(self):
        result = self.dry(*(argument for part in FIRST for argument in ("--part", part)), PYTHON="/bin/false")
        self.assertEqual(result.returncode, 0)
        states = self.states()
        self.assertEqual({part for part in states if states[part][0] == "skipped"}, SEVERAL_GPUS | {"torch"})
        self.assertEqual(states["links"], ("skipped", "one GPU"))
        self.assertIn("no PyTorch", states["torch"][1])

    def test_continues_where_the_first_call_had_no_time(self):
        self.muster('[[ " $* " != *" --name small-cnn-cpu "* || ! -e $HOME/slow ]] || sleep 1000')
        (self.folder / "slow").touch()
        parts = ["kernels", "training", "bandwidth", "accuracy"]
        # Parts run in the order of the arguments.
        begin = time.monotonic()
        first = self.dry(*(argument for part in parts for argument in ("--part", part)), LIMIT="12")
        self.assertEqual(first.returncode, 0)
        self.assertLess(time.monotonic() - begin, 30)
        self.assert_nothing_left()
        self.assertEqual(self.states(), {"kernels": ("passed", ""), "training": ("skipped", "no time"),
                                         "bandwidth": ("skipped", "no time"), "accuracy": ("skipped", "no time")})
        unrun = [part for part in PARTS if part != "kernels"]
        self.assertIn(f"no time for: {' '.join(unrun)}; run.sh --rest continues with these parts", first.stdout)
        # The folder is gone: only the archive has returned from the machine.
        (self.folder / "slow").unlink()
        shutil.rmtree(self.out)
        before = self.archived()
        rest = self.dry("--rest")
        self.assertEqual(rest.returncode, 0)
        self.assertEqual(re.findall(r"(?m)^== (\w+)$", rest.stdout), unrun)
        self.assertEqual(list(self.parts()), PARTS)
        self.assertEqual(self.states()["kernels"], ("passed", ""))
        self.assertNotIn("no time", rest.stdout)
        self.assertIn("results/kernels/optimizer_contract_test.log", before & self.archived())
        # Nothing is left to do.
        again = self.dry("--rest")
        self.assertEqual(re.findall(r"(?m)^== (\w+)$", again.stdout), [])
        self.assert_nothing_left()

    def test_archive_does_not_identify_the_machine(self):
        secrets = ["10.11.12.13", "192.168.1.9", "fe80::1ff:fe23:4567:890a", "2001:db8:0:1:2:3:4:5", "aa:bb:cc:dd:ee:ff",
                   "GPU-12345678-9abc-def0-1234-56789abcdef0", "/scratch/acme/alice", "/opt/acme-site/lib", "alice@acme.example",
                   "gw7.acme.example", "1650922000123", "gpu-box17", "other-box3", "alice"]
        planted = [f"I peer {secrets[0]}:7070 and {secrets[1]} {secrets[1]}", f"at {secrets[2]} {secrets[3]} {secrets[4]}",
                   f"cuda:0 {secrets[5]}", f'{{"path": "{secrets[6]}/run 1/a.log"}} in {secrets[7]}/libcudnn.so.9',
                   f"mail {secrets[8]} of http://{secrets[9]}/x", f"Serial Number : {secrets[10]}",
                   f"node {secrets[11]}.acme.example, {secrets[11]} by {secrets[13]} (home /home/{secrets[13]})",
                   f"{secrets[12]}:4711:4720 [0] NCCL INFO Bootstrap", f"{secrets[12]}:4711:4720 NCCL WARN Connection closed",
                   f"here {socket.gethostname()} by {getpass.getuser()} in {self.kit} and {self.temporary}",
                   "kept: 580.159.04 at 12:34:56 std::vector 00000000:3B:00.0 images/s /usr/lib/x.so"]
        (self.folder / "planted").write_text("\n".join(planted))
        self.tool("uname", "echo gpu-box17.acme.example")
        self.program("contract_test", "cat $HOME/planted; exit 3")
        self.program("make_jpegs", "printf 'GPU\\0binary gpu-box17' >$1.bin; cat $HOME/planted; exit 3")
        result = self.dry("--part", "nccl", "--part", "jpeg", NCCL_CHECKS="none", USER="alice", LOGNAME="alice")
        self.assertEqual(result.returncode, 1)
        with tarfile.open(f"{self.out}.tar.gz") as tar:
            text = "\n".join(tar.extractfile(entry).read().decode() for entry in tar if entry.isfile())
            names = " ".join(tar.getnames())
        for secret in (*secrets, str(self.kit), str(self.temporary), str(self.out)):
            self.assertNotIn(secret, text)
            self.assertNotIn(secret, names)
        for name in {socket.gethostname(), getpass.getuser()} - {"root", "localhost"}:
            self.assertNotRegex(text, rf"\b{re.escape(name)}\b")
        self.assertIn("kept: 580.159.04 at 12:34:56 std::vector 00000000:3B:00.0 images/s /usr/lib/x.so", text)
        self.assertIn("I peer ADDRESS:7070 and ADDRESS ADDRESS", text)

    def test_reports_what_fails_in_each_part(self):
        # Missing: cast_contract_test and optimizer_contract_test. The others fail or hang here.
        for program in ("cast_contract_test", "optimizer_contract_test"):
            (self.kit / "bin" / program).unlink()
        self.muster("""
            case " $* " in
              *" --name resnet18-cpu "* | *" --name resnet18-bfloat16 "*) exit 4 ;;
              *" --name resnet50-2 "* | *" --name resnet101-1 "*) sleep 1000 ;;
              *" --name never-1 "*) kill -SEGV $$ ;;
              *" --name resnet18-float16 "* | *" --name alone "*) exit 5 ;;
            esac""")
        self.program("contract_test", "echo '[  FAILED  ] a test'; exit 1")
        self.program("resize_contract_test", "kill -ABRT $$")
        self.program("make_jpegs", "exit 3")
        self.memory_bench("echo 'out of memory' >&2; exit 69")
        self.tool("compute-sanitizer", SANITIZER)
        self.tool("python3", "exit 1")
        result = self.dry(gpus=1, PART_SECONDS="throughput=5 models=5", NCCL_CHECKS="none", FASHION_MNIST="/none")
        self.assertEqual(result.returncode, 1)
        expected = {
            "contracts": ("failed", "cast_contract_test: no such program"),
            "throughput": ("failed", "resnet50-2: timed out after "),
            "links": ("skipped", "one GPU"),
            "scaling": ("skipped", "one GPU"),
            "nodes": ("skipped", "one GPU"),
            "torch": ("skipped", "no PyTorch"),
            "jpeg": ("failed", "make_jpegs failed"),
            "memory": ("passed", ""),
            "nccl": ("failed", "contract_test: exit status 1: [  FAILED  ] a test"),
            "training": ("failed", "resnet18-cpu: exit status 4:  (and 2 more)"),
            "graphs": ("failed", "never-1: exit status 139: "),
            "bandwidth": ("failed", "memory_bench: exit status 69: out of memory"),
            "models": ("failed", "resnet101-1: timed out after "),
            "kernels": ("failed", ""),
            "accuracy": ("skipped", "no /none; set FASHION_MNIST to the dataset's folder"),
            "sanitizer": ("failed", "racecheck-"),
        }
        states = self.states()
        self.assertEqual(list(states), list(expected))
        for part, (state, reason) in expected.items():
            with self.subTest(part):
                self.assertEqual(states[part][0], state)
                self.assertTrue(states[part][1].startswith(reason), states[part][1])
                self.assertRegex((self.out / "summary.txt").read_text(), rf"(?m)^{part} +\d+ s  {state} *\S*.*$")
        self.assertIn("resize_contract_test: exit status 134", (self.out / "kernels/problems").read_text())
        self.assertEqual(result.stdout.count((self.out / "summary.txt").read_text()), 1)
        # A part continues after a failure.
        parts = self.parts()
        self.assertTrue(parts["training"]["found"]["small_cnn"]["agree"])
        self.assertTrue(parts["contracts"]["found"]["pooling_contract_test"])
        self.assertTrue(parts["sanitizer"]["found"]["initcheck-batch_norm_contract_test"])
        self.assertEqual(set(parts["throughput"]["found"]["resnet50"]["runs"]), {5000.5})
        self.assertLessEqual({f"results/{part}/result.json" for part in expected}, self.archived())
        self.assert_nothing_left()

    def accuracy(self, script):
        """Runs part accuracy with a program in place of `muster local`; returns its state, reason and results."""
        self.muster(f'if [[ $1 == local ]]; then\n{script}\nexit\nfi')
        self.dry("--part", "accuracy")
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

    def test_skips_nccl_without_its_library(self):
        self.program("list_libraries", "echo 'cuDNN 9.0.0'; echo 'NCCL: cannot open libnccl.so.2'")
        result = self.dry("--part", "nccl")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(self.states(), {"nccl": ("skipped", "NCCL: cannot open libnccl.so.2")})

    def test_archives_results_when_interrupted(self):
        self.muster('[[ $1 != local ]] || { touch "$HOME/hangs"; sleep 1000; }')
        with subprocess.Popen(self.command("--part", "training", "--part", "kernels"), env=self.environment()) as process:
            while not (self.folder / "hangs").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(), 128 + signal.SIGTERM)
        self.assertEqual(self.states(), {"training": ("skipped", "interrupted"), "kernels": ("skipped", "interrupted")})
        self.assertIn("results/training/result.json", self.archived())
        self.assert_nothing_left()

    def test_rejects_unknown_arguments(self):
        for arguments in (["--part", "speed"], ["--fast"], ["--rest", "--part", "nccl"], ["--listen", "here"],
                          ["--join", "here:1"]):
            with self.subTest(arguments):
                self.assertEqual(self.run_script(*arguments).returncode, 64)
        self.assertEqual(self.run_script(env=self.environment(PART_SECONDS="speed=3")).returncode, 64)
        missing = self.run_script("/none.tar.xz")
        self.assertEqual(missing.returncode, 66)
        self.assertIn("no /none.tar.xz", missing.stdout)
        nothing = self.run_script("--rest", env=self.environment())
        self.assertEqual(nothing.returncode, 66)
        self.assertIn("has results to continue", nothing.stdout)

    def test_prints_help(self):
        result = self.run_script("--help")
        self.assertEqual(result.returncode, 0)
        for part in PARTS:
            self.assertRegex(result.stdout, rf"(?m)^  {part} ")

    def test_time_limits_fit_into_one_call(self):
        script = self.script.read_text()
        seconds = {name: int(value) for name, value in re.findall(r"\[(\w+)\]=(\d+)", script)}
        self.assertEqual(set(seconds), set(PARTS))
        one, several = re.search(r"\(560; 840 ", script), re.search(r"gpus > 1 \? (\d+) : (\d+)", script)
        self.assertIsNotNone(one)
        self.assertEqual(several.groups(), ("840", "560"))
        # The bundle and the GPU need some seconds, too.
        self.assertLessEqual(sum(seconds[part] for part in FIRST if part not in SEVERAL_GPUS), 545)
        self.assertLessEqual(sum(seconds[part] for part in FIRST), 825)
        self.assertLessEqual(sum(seconds[part] for part in REST), 555)

    def test_without_a_library(self):
        self.program("list_libraries", "echo 'CUDA: no libcudnn.so.9 in /none'; echo 'libz 1.2.13'; exit 1")
        result = self.run_script(env=self.environment())
        self.assertEqual(result.returncode, 69)
        self.assertIn("run.sh: CUDA: no libcudnn.so.9 in /none", result.stdout)
        self.assertIn("set MUSTER_CUDA_LIBRARY_PATH", result.stdout)
        self.assert_nothing_left()


class PrepareTest(GpuRunTest):
    def make_kit(self):
        pass

    def prepare(self, limit_bytes=0):
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        images = b"image" * 1000
        subprocess.run(["gzip", "-c"], input=images, check=True, stdout=(data / "train-images-idx3-ubyte.gz").open("wb"))
        kit = self.folder / "kit.tar.xz"
        kit.write_bytes(b"kit")
        os.truncate(kit, max(3, limit_bytes))
        result = subprocess.run([ROOT / "tests/gpu/prepare.sh", self.folder / "travel"], text=True, check=False,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                env=self.environment(KIT=str(kit), FASHION_MNIST=str(data)))
        print(result.stdout)
        return result, images

    def test_prepares_a_folder_within_the_limit(self):
        result, images = self.prepare()
        self.assertEqual(result.returncode, 0)
        self.assertEqual({file.name for file in (self.folder / "travel").iterdir()},
                         {"muster-gpu-kit.tar.xz", "fashion-mnist.tar.xz"})
        with tarfile.open(self.folder / "travel/fashion-mnist.tar.xz") as tar:
            self.assertEqual(tar.extractfile("fashion-mnist/train-images-idx3-ubyte").read(), images)
        self.assertRegex(result.stdout, r"in total; the limit is 61440 KiB")

    def test_rejects_a_folder_above_the_limit(self):
        result, _ = self.prepare((60 << 20) + 1)
        self.assertEqual(result.returncode, 73)
        self.assertIn("is too large", result.stdout)


if __name__ == "__main__":
    unittest.main()
