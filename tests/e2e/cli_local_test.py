"""Commands that need no cluster: `muster local` and `muster spec`."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from tests.support.cluster import binary, shell_spec, training_spec, wait_until

SLEEP = "echo started; exec sleep 600"
# Ends only by SIGKILL, and so does its child in a separate session.
IGNORES_SIGNALS = "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & echo started; " \
       "while :; do sleep 0.1; done"


class LocalTest(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-test."))
        self.addCleanup(shutil.rmtree, self.directory)
        self.addCleanup(self.check_nothing_is_left)

    def popen(self, *args, **kwargs):
        # Variables of another cluster must be ignored.
        env = dict(os.environ, TMPDIR=str(self.directory), MUSTER_COORDINATOR="127.0.0.1:1",
                   MUSTER_TOKEN="another", MUSTER_LISTEN="0.0.0.0:1")
        return subprocess.Popen([binary("cli/muster"), *map(str, args)], env=env, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)

    def muster(self, *args):
        process = self.popen(*args)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def write_spec(self, spec):
        path = self.directory / f"{spec['name']}.json"
        path.write_text(json.dumps(spec))
        return path

    def processes(self):
        """Command lines of all processes of this test."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and str(self.directory).encode() in (entry / "environ").read_bytes():
                    found.append((int(entry.name), (entry / "cmdline").read_bytes()))
            except OSError:
                pass
        return found

    def check_nothing_is_left(self):
        wait_until(lambda: not self.processes(), 20, f"no process left: {self.processes()}")
        wait_until(lambda: not list(self.directory.glob("muster-local.*")), 5, "its directory is removed")

    def start(self, script=SLEEP, **kwargs):
        process = self.popen("local", "--", "/bin/bash", "-c", script, **kwargs)
        line = process.stdout.readline()
        self.assertEqual(line, "started\n", process.stderr.read() if not line else None)
        return process

    def test_output_and_exit_status_match_run(self):
        result = self.muster("local", self.write_spec(shell_spec("fails", "echo out; echo err >&2; exit 5")))
        self.assertEqual((result.returncode, result.stdout), (5, "out\nerr\n"))
        for text in ("running: generation 1", "RankFailed", "exited with code 5"):
            self.assertIn(text, result.stderr)
        self.assertEqual(self.muster("local", "--", "/bin/true").returncode, 0)

    def test_runs_training(self):
        spec = training_spec("mlp", model={"name": "mlp", "hidden": [16]}, max_steps=20,
                             resources={"nodes": 2, "ranks_per_node": 2})
        result = self.muster("local", self.write_spec(spec), "-o", "json")
        self.assertEqual(result.returncode, 0, result.stderr)
        job = json.loads(result.stdout)
        self.assertEqual((job["state"], job["summary"]["steps"]), ("SUCCEEDED", 20))
        self.assertEqual({rank["node"] for rank in job["ranks"]}, {"local-1", "local-2"})
        if os.cpu_count() < 4:
            self.assertIn(f"4 slots on {os.cpu_count()} core", result.stderr)

    def run_in_folder(self, name, *jobs):
        """Runs the jobs at the same time in a new folder; returns the folder and of each run its job and stderr."""
        folder = self.directory / name
        folder.mkdir()
        runs = [self.popen("local", "-o", "json", *job, cwd=folder) for job in jobs]
        results = []
        for run in runs:
            out, err = run.communicate(timeout=120)
            self.assertEqual(run.returncode, 0, err)
            results.append((json.loads(out), err))
        return folder, results

    def test_checkpoints_stay(self):
        """./muster-checkpoints is left only if a job has written to it."""
        mlp = {"name": "mlp", "hidden": [16]}
        training = self.write_spec(training_spec("kept", model=mlp, max_steps=5,
                                                 resources={"nodes": 2, "ranks_per_node": 1}))
        writes = ("--", "/bin/sh", "-c", "touch $MUSTER_CHECKPOINT_DIR/model.pt")
        folder, results = self.run_in_folder("some", (training,), writes, ("--", "/bin/true"))
        (job, err), (command, _), _ = results
        checkpoints = folder / "muster-checkpoints"
        path = checkpoints / job["job_id"] / "step-00000005.g1"
        self.assertEqual(job["summary"]["checkpoint"], str(path))
        self.assertIn(f"\ncheckpoint: {path}\n", err)
        self.assertNotIn("warning", err)
        self.assertTrue((path / "model.safetensors").is_file())
        self.assertEqual({entry.name for entry in checkpoints.iterdir()}, {job["job_id"], command["job_id"]})

        without = self.write_spec(training_spec("none", model=mlp, max_steps=5, checkpoint={"keep": 0}))
        folder, _ = self.run_in_folder("none", (without,), ("--", "/bin/true"))
        self.assertEqual(list(folder.iterdir()), [])

    def test_concurrent_runs(self):
        runs = [self.popen("local", "--ranks-per-node", "2", "--", "/bin/sh", "-c", f"echo {i}; exit {i}")
                for i in range(1, 5)]
        for i, run in enumerate(runs, 1):
            out, err = run.communicate(timeout=120)
            self.assertEqual(run.returncode, i, err)
            # The rank that fails second may be stopped before it prints.
            lines = set(out.splitlines())
            self.assertTrue(lines and lines <= {f"0| {i}", f"1| {i}"}, out + err)

    def test_signal_cancels_job(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(signal=number):
                process = self.start()
                process.send_signal(number)
                _, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 130, err)
                self.assertIn("cancelled", err)
                self.check_nothing_is_left()

    def test_second_signal_stops_immediately(self):
        process = self.start(script=IGNORES_SIGNALS)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        while "interrupted" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertLess(time.monotonic() - began, 20)  # the job's grace period is 30 s
        self.check_nothing_is_left()

    def test_cleans_up_when_killed(self):
        """Whichever process is killed, all others end, including those that ignore signals."""
        process = self.start(script=IGNORES_SIGNALS)
        process.kill()
        process.communicate()
        self.check_nothing_is_left()

    def test_cleans_up_when_process_group_is_killed(self):
        """A terminal or a batch system kills the process group in this way."""
        process = self.start(script=IGNORES_SIGNALS, start_new_session=True)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        self.check_nothing_is_left()

    def test_reports_killed_daemon(self):
        for name in (b"muster-worker", b"muster-coordinator"):
            with self.subTest(daemon=name):
                process = self.start()
                pids = [pid for pid, line in self.processes() if line.split(b"\0")[0].endswith(name)]
                self.assertEqual(len(pids), 1)
                os.kill(pids[0], signal.SIGKILL)
                _, err = process.communicate(timeout=60)
                self.assertEqual(process.returncode, 1, err)
                self.assertIn(f"the {name.decode().split('-')[1]} was killed by signal 9", err)
                self.check_nothing_is_left()

    def test_reports_startup_failures(self):
        for status, text, args in (
                (66, "/no/such is not an executable file", ["--worker-binary=/no/such"]),
                (1, "the worker ended with status 1", ["--worker-binary=/bin/false"]),
                (1, "the coordinator ended with status 1", ["--coordinator-binary=/bin/false"]),
                (73, "is not empty", ["--keep", self.directory]),
                (78, "resources.nodes", ["--set", "resources.nodes=none"])):
            (self.directory / "something").touch()
            result = self.muster("local", *args, "--", "/bin/true")
            self.assertEqual(result.returncode, status, result.stderr)
            self.assertIn(text, result.stderr)

    def test_keep_preserves_directory(self):
        kept = self.directory / "kept"
        self.assertEqual(self.muster("local", "--keep", kept, "--", "/bin/echo", "kept").returncode, 0)
        logs = [path.read_text() for path in kept.rglob("rank-0000.stdout")]
        self.assertEqual(logs, ["kept\n"])


class SpecTest(unittest.TestCase):
    """Invalid specs: one clear line each, without contacting a coordinator."""

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-test."))
        self.addCleanup(shutil.rmtree, self.directory)

    def muster(self, *args):
        env = dict(os.environ, MUSTER_COORDINATOR="127.0.0.1:1")
        return subprocess.run([binary("cli/muster"), *map(str, args)], env=env, capture_output=True, text=True,
                              timeout=20)

    def test_template_is_valid(self):
        path = self.directory / "job.yaml"
        path.write_text(self.muster("spec", "init").stdout)
        result = self.muster("spec", "validate", path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("epochs: 3", result.stdout)

    def test_rejects_invalid_specs(self):
        train = "train: {model: {name: %s}, dataset: {name: mnist, path: /d}, epochs: 1, global_batch: %d, " \
                "optimizer: {learning_rate: 0.1}}\nresources: {nodes: 2, ranks_per_node: 2}\n"
        laughs = "a: &a0 [x]\n" + "".join(f"b{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
        for name, content, text in (
                ("unknown-field", "name: x\ntrain:\n  epoch: 3\n", ":3: unknown field 'epoch' in train; did you "
                                                                    "mean 'epochs'?"),
                ("no-nodes", "command: [x]\nresources: {nodes: 0}\n", ":2: resources.nodes: expected a number above 0"),
                ("small-batch", train % ("mlp", 3), "train.global_batch: 3 is below the number of ranks, 4"),
                ("unknown-model", train % ("smal_cnn", 4), "unknown 'smal_cnn'; did you mean 'small_cnn'?"),
                ("large", "name: x\nenv: {A: '" + "x" * 10_000_000 + "'}\n", "larger than 1048576 bytes"),
                ("not-yaml", "#!/bin/sh\necho hi: there: you\n", ":2: not YAML"),
                ("garbage", bytes(range(256)) * 20, "is not UTF-8"),
                ("nul", "name: a\0b\n", "contains a NUL character"),
                ("deep", "command: " + "[" * 100_000, "nested too deep"),
                ("laughs", laughs + "command: *a9\n", "unknown field"),
                ("empty", "", "the spec is empty"),
                ("comments", "# nothing\n", "the spec is empty")):
            path = self.directory / f"{name}.yaml"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            for verb in (("spec", "validate"), ("run",), ("submit",), ("local",)):
                with self.subTest(spec=name, verb=verb):
                    result = self.muster(*verb, path)
                    self.assertEqual(result.returncode, 78, result.stderr)
                    self.assertIn(text, result.stderr)
                    self.assertTrue(all(line.startswith("muster: ") and len(line) < 300
                                        for line in result.stderr.splitlines()), result.stderr)
                    self.assertEqual(result.stdout, "")

    def test_reports_unreadable_files(self):
        for path, text in (("/no/such/file", "No such file or directory"), (self.directory, "Is a directory"),
                           ("/proc/self/mem", "Input/output error")):
            result = self.muster("spec", "validate", path)
            self.assertEqual(result.returncode, 66)
            self.assertEqual(result.stderr, f"muster: read {path}: {text}\n")


class ExplainPlanTest(unittest.TestCase):
    """`muster spec explain-plan` without a coordinator and without data."""

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-test."))
        self.addCleanup(shutil.rmtree, self.directory)
        self.spec = self.directory / "spec.json"
        self.spec.write_text(json.dumps(training_spec("plan", global_batch=40, dataset={
            "name": "fashion_mnist", "path": "/no/such/data"})))

    def explain(self, *args, status=0):
        result = subprocess.run([binary("cli/muster"), "spec", "explain-plan", str(self.spec), *map(str, args)],
                                env=dict(os.environ, MUSTER_COORDINATOR="127.0.0.1:1"), capture_output=True, text=True,
                                timeout=60, check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stdout if status == 0 else result.stderr

    def test_table(self):
        lines = self.explain("--ranks", 3).splitlines()
        self.assertEqual(lines[0].split(), ["LAYER", "KIND", "INPUT", "OUTPUT", "DTYPE", "COMPUTE", "KERNEL",
                                            "PARAMETERS", "BYTES", "FLOPS", "OFFSET"])
        self.assertRegex(lines[1], r"^0 +conv2d +28x28x1 +28x28x32 +float32 ")
        self.assertIn("421,834 parameters; for each image 8.5", lines[-3])
        self.assertRegex(lines[-2], r"^14 samples at most on each of 3 ranks; activations take ")

    def test_precision(self):
        lines = self.explain("--set", "train.precision=O2", "--set", "train.model={name: resnet18}").splitlines()
        self.assertRegex(lines[1], r"^conv1 +conv2d +28x28x1 .* float32 > bfloat16 +bfloat16 ")
        self.assertRegex(lines[4], r"^layer1.0.conv1 +conv2d .* bfloat16 +bfloat16 ")
        self.assertTrue(any("batch_norm2d + add + relu" in line for line in lines))

    def test_json_with_times(self):
        report = json.loads(self.explain("--time", "-o", "json"))
        self.assertEqual((report["ranks"], report["rows"], report["parameters"]), (1, 40, 421834))
        operations = report["operations"]
        self.assertEqual(sum(operation["parameters"] for operation in operations), 421834)
        for field in ("forward_flops", "activation_bytes", "arena_offset", "forward_us", "backward_us", "share"):
            self.assertIsInstance(operations[0][field], (int, float))
        times = report["times"]
        shares = [*(operation["share"] for operation in operations), times["objective_share"], times["optimizer_share"]]
        self.assertAlmostEqual(sum(shares), 100, places=6)
        self.assertGreater(times["images_per_second"], 0)
        # Without --time the report has no times.
        self.assertNotIn("forward_us", json.loads(self.explain("-o", "json"))["operations"][0])

    def test_every_model(self):
        for model, millions in (("resnet18", 11.2), ("resnet50", 23.5), ("mobilenet_v2", 2.2)):
            report = json.loads(self.explain("--set", f"train.model={{name: {model}}}", "--set", "train.image_size=64",
                                             "--set", "train.global_batch=2", "-o", "json"))
            self.assertAlmostEqual(report["parameters"] / 1e6, millions, delta=0.06, msg=model)

    def test_image_folder_determines_classes(self):
        folder = ("--set", f"train.dataset={{name: image_folder, path: {self.directory}}}", "--set",
                  "train.image_size=32", "-o", "json")
        self.assertIn(f"{self.directory}/train", self.explain(*folder, status=66))
        for name in ("cat", "dog", "owl"):
            (self.directory / "train" / name).mkdir(parents=True)
            (self.directory / "train" / name / "1.jpg").touch()
        self.assertEqual(json.loads(self.explain(*folder))["operations"][-1]["output"]["channels"], 3)

    def test_rejects_unexplainable_specs(self):
        for status, text, args in (
                (78, "unknown 'smal_cnn'", ("--set", "train.model.name=smal_cnn")),
                (78, "train.model.layers[0].conv2d.kernel: is missing",
                 ("--set", "train.model={layers: [conv2d: {out_channels: 8}]}")),
                (78, "10 classes", ("--set", "train.model={layers: [flatten, linear: {out_features: 7}]}")),
                (66, "/no/such/rank is not an executable file", ("--rank-binary", "/no/such/rank")),
                (1, "/bin/false exited without an answer", ("--rank-binary", "/bin/false"))):
            message = self.explain(*args, status=status)
            self.assertIn(text, message)
            self.assertTrue(all(line.startswith("muster: ") for line in message.splitlines()), message)
        self.spec.write_text(json.dumps(shell_spec("command", "true")))
        self.assertIn("only train jobs have a plan", self.explain(status=78))


if __name__ == "__main__":
    unittest.main()
