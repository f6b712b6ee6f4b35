"""User errors: each yields its exit status and one clear line, and leaves the cluster unharmed."""

import gzip
import json
import os
import pathlib
import shutil
import socket
import subprocess
import unittest

from tests.support import namespaces
from tests.support.cluster import Cluster, Daemon, binary, command_spec, training_spec, wait_until

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
IMAGES = "train-images-idx3-ubyte.gz"
COORDINATOR = "coordinator/muster-coordinator"
WORKER = "worker/muster-worker"

USAGE, NO_INPUT, UNAVAILABLE, CANNOT_CREATE, BAD_SPEC = 2, 66, 69, 73, 78


class BadInputTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = cls.enterClassContext(Cluster(nodes=2, slots=1))

    def setUp(self):
        self.directory = self.cluster.directory / self.id().rsplit(".", 1)[1]
        self.directory.mkdir()
        self.addCleanup(self.check_cluster_is_healthy)

    def check_cluster_is_healthy(self):
        """A job runs on the whole cluster, after which every slot is free and no rank is left."""
        job = self.cluster.run(command_spec("good", "/bin/true", nodes=2), timeout=20)
        self.assertEqual(job["state"], "SUCCEEDED")
        wait_until(lambda: not any(s.get("job_id") for n in self.cluster.nodes() for s in n["slots"]), 5,
                   "every slot free")
        self.assertEqual(self.cluster.rank_pids(), [])

    # ---- errors visible in the spec: exit status 78, nothing is queued

    def check_bad_spec(self, text, *expected):
        path = self.directory / "spec.yaml"
        path.write_text(text)
        before = self.jobs()
        for verb in (("spec", "validate"), ("submit",), ("run",), ("submit", "--dry-run")):
            result = self.cluster.muster(*verb, path, check=False)
            self.assertEqual(result.returncode, BAD_SPEC, (verb, result.stderr))
            self.assertEqual(result.stdout, "")
            for part in expected:
                self.assertIn(part, result.stderr, verb)
            self.assertLess(len(result.stderr.splitlines()), 8, result.stderr)
        self.assertEqual(self.jobs(), before)

    def jobs(self):
        return sorted(j["job_id"] for j in json.loads(self.cluster.muster("list", "-a", "-o", "json").stdout))

    def train(self, more="", model="small_cnn", resources="{nodes: 1}"):
        return (f"name: bad\ntrain:\n  model: {{name: {model}}}\n  dataset: {{name: fashion_mnist, path: {DATA}}}\n"
                f"  max_steps: 5\n  optimizer: {{name: sgd, learning_rate: 0.1}}\n  {more}\nresources: {resources}\n")

    def test_unknown_field(self):
        self.check_bad_spec(self.train("epoch: 3"), "spec.yaml:7: ", "'epoch'", "did you mean 'epochs'?")
        self.check_bad_spec("name: bad\ncommand: [/bin/true]\nresource: {nodes: 1}\n", "'resource'", "'resources'")

    def test_no_nodes(self):
        self.check_bad_spec(self.train(resources="{nodes: 0}"), "resources.nodes", "'0'")

    def test_batch_smaller_than_ranks(self):
        self.check_bad_spec(self.train("global_batch: 3", resources="{nodes: 2, ranks_per_node: 2}"),
                            "train.global_batch", "3 is below the number of ranks, 4")

    def test_unknown_model(self):
        self.check_bad_spec(self.train(model="smal_cnn"), "train.model.name", "'smal_cnn'", "'small_cnn'", "mlp")

    def test_spec_too_large(self):
        self.check_bad_spec(f"name: bad\ncommand: [/bin/echo, {'x' * (10 << 20)}]\n", "1048576")

    def test_not_a_spec(self):
        for text in ("", "\x00\x01", "[1, 2]", "name: [", "just words", "&a [*a, *a]"):
            self.check_bad_spec(text, "spec.yaml")
        for path in ("/no/such/file", self.directory):
            self.assertEqual(self.cluster.muster("submit", path, check=False).returncode, NO_INPUT)

    # ---- errors that only a node detects: the job fails at once, without restart

    def check_fails(self, spec, status, *expected):
        """Checks the exit status, node and path in the message, and that there was one generation."""
        spec["restart"] = {"max": 3}
        result = self.cluster.muster("run", self.cluster.write_spec(spec), "-o", "json", check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        job = json.loads(result.stdout)
        self.assertEqual((job["state"], int(job["generation"])), ("FAILED", 1), job)
        for part in ("node-1", *expected):
            self.assertIn(part, job["message"])
            self.assertIn(part, result.stderr)
        return job

    def broken_data(self, change):
        """Spec of a training on a copy of the dataset that `change(path of the images)` has modified."""
        for path in DATA.iterdir():
            shutil.copy(path, self.directory)
        change(self.directory / IMAGES)
        return training_spec("data", max_steps=5,
                             dataset={"name": "fashion_mnist", "path": str(self.directory)})

    def test_missing_data_file(self):
        self.check_fails(self.broken_data(pathlib.Path.unlink), NO_INPUT, str(self.directory / IMAGES), ".gz exists")

    def test_truncated_data_file(self):
        def cut(path):
            os.truncate(path, path.stat().st_size // 2)
        self.check_fails(self.broken_data(cut), NO_INPUT, str(self.directory / IMAGES), "truncated")

    def test_truncated_data_before_compression(self):
        def cut(path):
            path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:1000000], 1))
        self.check_fails(self.broken_data(cut), NO_INPUT, str(self.directory / IMAGES), "truncated")

    def test_checkpoint_directory_under_a_file(self):
        (self.directory / "file").touch()
        below = str(self.directory / "file/checkpoints")
        self.check_fails(training_spec("below", max_steps=5, checkpoint={"dir": below}), CANNOT_CREATE, below)

    def test_commands_that_cannot_start(self):
        (self.directory / "text").write_text("not a program")
        for argv, more, status, part in (
                (["/no/such/program"], {}, 127, "/no/such/program: No such file"),
                (["no-such-program"], {}, 127, "no-such-program: not found in PATH="),
                ([str(self.directory / "text")], {}, 126, "text: Permission denied"),
                (["/bin/true"], {"workdir": "/no/such/folder"}, NO_INPUT, "workdir /no/such/folder: No such file")):
            job = self.check_fails(command_spec("start", *argv, **more), status, part)
            self.assertEqual(job["reason"], "LaunchFailed")

    # ---- checkpoints

    def checkpointed_spec(self, name, steps, **checkpoint):
        return training_spec(name, max_steps=steps, checkpoint={
            "dir": str(self.directory), "every_steps": 20, "keep": 10, **checkpoint})

    def checkpointed(self, name, steps, **checkpoint):
        job = self.cluster.run(self.checkpointed_spec(name, steps, **checkpoint))
        self.assertEqual((job["state"], int(job["summary"]["steps"])), ("SUCCEEDED", steps))
        logs = self.cluster.muster("logs", job["job_id"]).stdout
        return int(job["summary"].get("resumed_from_step", 0)), logs

    def write_checkpoints(self, *steps):
        """Trains to each of the steps in turn: only the last checkpoint of a training is never skipped."""
        for number, step in enumerate(steps):
            self.checkpointed(f"to-{step}", step, **({"resume_from": str(self.directory)} if number > 0 else {}))
        return {step: next(self.directory.glob(f"step-{step:08}.g*")) for step in steps}

    def test_corrupt_checkpoints(self):
        """Training resumes from the newest valid checkpoint, and the log names the corrupt ones."""
        steps = self.write_checkpoints(40, 60, 80)
        with open(steps[80] / "model.safetensors", "r+b") as model:  # one bit, far from the header
            model.seek(-1000, os.SEEK_END)
            byte = model.read(1)
            model.seek(-1, os.SEEK_CUR)
            model.write(bytes([byte[0] ^ 1]))
        os.truncate(steps[60] / "optimizer.safetensors", 1000)
        resumed, logs = self.checkpointed("second", 100, resume_from=str(self.directory))
        self.assertEqual(resumed, 40)
        for step in (80, 60):
            self.assertRegex(logs, f"skipping invalid checkpoint: .*{steps[step].name}")
        self.assertIn(f"resumed from {steps[40]}", logs)

    def test_no_valid_checkpoint(self):
        steps = self.write_checkpoints(20, 40)
        (steps[40] / "state.json").write_text("{}")
        (steps[20] / "model.safetensors").unlink()
        job = self.check_fails(self.checkpointed_spec("second", 60, resume_from=str(self.directory)), NO_INPUT,
                               f"no rank found a valid checkpoint in {self.directory}")
        logs = self.cluster.muster("logs", job["job_id"]).stdout
        self.assertRegex(logs, f"skipping checkpoint without a valid state.*{steps[40].name}")
        self.assertRegex(logs, f"skipping invalid checkpoint: .*{steps[20].name}")

    # ---- jobs that do not fit

    def test_job_larger_than_cluster(self):
        for shape, expected in (
                ({"nodes": 3}, "needs 3 nodes with 1 free slot; 2 available; "
                               "the cluster has 2 usable nodes of that size, 1 too few"),
                ({"ranks": 2}, "needs 1 node with 2 free slots; 0 available; "
                               "the cluster has 0 usable nodes of that size, 1 too few")):
            spec = self.cluster.write_spec(command_spec("large", "/bin/true", **shape))
            submitted = self.cluster.muster("submit", spec, "-o", "name")
            job = submitted.stdout.strip()
            self.addCleanup(self.cluster.muster, "cancel", job)
            self.assertIn(f"warning: {job} does not fit on the cluster: needs", submitted.stderr)
            self.assertIn("QUEUED,UNPLACEABLE", self.cluster.muster("list").stdout)
            behind = self.cluster.submit(command_spec("behind", "/bin/true"))
            self.assertEqual(self.cluster.wait(behind)["state"], "SUCCEEDED")
            queued = self.cluster.get(job)
            self.assertEqual((queued["state"], queued["reason"]), ("QUEUED", "WaitingForResources"))
            self.assertIn(expected, self.cluster.muster("describe", job).stdout)
            lacks = expected.replace(expected.split("; ")[1] + "; ", "")
            self.assertIn(f"does not fit on the cluster: {lacks}.", self.cluster.muster("why", job).stdout)
            self.cluster.muster("cancel", job)
            self.assertEqual(self.cluster.get(job)["state"], "CANCELLED")

    # ---- daemons that cannot start

    def start(self, program, *flags):
        """Exit status and last line of a daemon that must exit by itself."""
        result = subprocess.run([binary(program), *map(str, flags)], stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=20, check=False)
        self.assertNotIn("listening grpc", result.stdout)
        return result.returncode, result.stderr.strip().splitlines()[-1]

    def start_coordinator(self, listen="127.0.0.1:0", http="127.0.0.1:0", data=None, *more):
        return self.start(COORDINATOR, f"--listen={listen}", f"--http={http}",
                          f"--data-dir={data or self.directory / 'data'}", *more)

    def start_worker(self, http="127.0.0.1:0", data=None):
        return self.start(WORKER, f"--coordinator={self.cluster.address}", "--name=another", f"--http={http}",
                          f"--data-dir={data or self.directory / 'data'}")

    def test_port_in_use(self):
        """The message names the address and its owner, for every port."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            mine = f"127.0.0.1:{taken.getsockname()[1]}"
            me = f"{os.path.basename(os.path.realpath('/proc/self/exe'))} (pid {os.getpid()})"
            other = f"muster-coordinator (pid {self.cluster.coordinator.pid})"
            for address, owner in ((mine, me), (self.cluster.address, other), (self.cluster.http, other)):
                for start in (lambda a: self.start_coordinator(listen=a), lambda a: self.start_coordinator(http=a),
                              lambda a: self.start_worker(http=a)):
                    status, line = start(address)
                    self.assertEqual(status, CANNOT_CREATE, line)
                    self.assertIn(f"listen on {address}: the address is in use by {owner}", line)

    def test_address_of_another_machine(self):
        for listen, http in (("192.0.2.1:0", "127.0.0.1:0"), ("127.0.0.1:0", "192.0.2.1:0")):
            status, line = self.start_coordinator(listen, http, None, "--insecure-bind")
            self.assertEqual(status, CANNOT_CREATE, line)
            self.assertIn("listen on 192.0.2.1:0: ", line)
            self.assertIn("Cannot assign requested address", line)

    def test_data_directory_in_use(self):
        data = self.cluster.directory
        status, line = self.start_coordinator(data=data / "coordinator")
        self.assertEqual(status, CANNOT_CREATE, line)
        self.assertIn(f"{data}/coordinator is in use by another coordinator (pid {self.cluster.coordinator.pid})", line)
        status, line = self.start_worker(data=data / "node-1")
        self.assertEqual(status, CANNOT_CREATE, line)
        self.assertIn(f"{data}/node-1 is in use by another worker (pid {self.cluster.workers['node-1'].pid})", line)

    def test_data_directory_under_a_file(self):
        (self.directory / "file").touch()
        below = self.directory / "file/data"
        for status, line in (self.start_coordinator(data=below), self.start_worker(data=below)):
            self.assertEqual(status, CANNOT_CREATE, line)
            self.assertIn(f"{below}: Not a directory", line)

    def test_unreachable_coordinator(self):
        with socket.socket() as unused:  # bound but not listening, so that no process can listen there
            unused.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % unused.getsockname()[1]
            for verb in (["list"], ["get", "x"], ["wait", "x"], ["logs", "x"], ["node", "list"], ["cancel", "x"],
                         ["submit", "--", "true"], ["run", "--", "true"]):
                result = self.cluster.muster(f"--coordinator={address}", *verb, check=False)
                self.assertEqual(result.returncode, UNAVAILABLE, (verb, result.stderr))
                self.assertIn(address, result.stderr)
                self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)

    def test_rejects_second_worker_with_same_name(self):
        """The second worker is rejected with a message and disturbs nothing; it takes over once the first has stopped."""
        job = self.cluster.submit(command_spec("steady", "/bin/sleep", "600", nodes=2))
        self.cluster.wait_for_state(job, "RUNNING")
        first = self.cluster.workers["node-2"]
        data = self.directory / "data"
        second = Daemon("second", [binary(WORKER), f"--coordinator={self.cluster.address}", "--name=node-2",
                                   f"--data-dir={data}", "--http=127.0.0.1:0", "--slots=1"],
                        self.cluster.directory, env=self.cluster.environment())
        self.cluster.workers["second"] = second
        said = "node name node-2 is already in use by a live worker at 127.0.0.1"
        self.addCleanup(self.cluster.muster, "cancel", job, "--force", check=False)
        wait_until(lambda: said in second.log(), 10, f"'{said}' in the second worker's log")
        self.assertEqual({n["state"] for n in self.cluster.nodes()}, {"READY"})
        self.assertEqual(self.cluster.get(job)["state"], "RUNNING")
        self.cluster.muster("cancel", job, "--grace", "1s")
        self.cluster.wait(job, check=False)
        self.assertEqual(first.stop(), 0)
        wait_until(lambda: "session opened with the coordinator" in second.log(), 10, "the second worker's session")
        self.cluster.wait_for_nodes(2)


WHY_NOT = namespaces.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class ReadOnlyTest(unittest.TestCase):
    def test_checkpoint_directory_is_read_only(self):
        """The directory is read-only on the node alone, as with a different mount."""
        with Cluster(nodes=0) as cluster:
            checkpoints = cluster.directory / "checkpoints"
            checkpoints.mkdir()
            mounts = cluster.resources.enter_context(namespaces.Mounts(
                f"mount --bind {checkpoints} {checkpoints}; mount -o remount,bind,ro {checkpoints}"))
            cluster.start_worker("node-1", prefix=mounts.prefix())
            cluster.wait_for_nodes(1)
            result = cluster.muster("run", cluster.write_spec(training_spec(
                "read-only", max_steps=5, checkpoint={"dir": str(checkpoints)})), "-o", "json", check=False)
            self.assertEqual(result.returncode, CANNOT_CREATE, result.stderr)
            job = json.loads(result.stdout)
            self.assertEqual(int(job["generation"]), 1)
            for part in ("node-1", str(checkpoints), "Read-only file system"):
                self.assertIn(part, job["message"])
            self.assertEqual(list(checkpoints.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
