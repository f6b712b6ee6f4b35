"""A real cluster on loopback for a test: coordinator and workers as processes, in a directory of its own."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _bin(path):
    """A built binary, in a test's runfiles or in bazel-bin."""
    for root in (pathlib.Path.cwd(), ROOT, ROOT / "bazel-bin"):
        candidate = root / path
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate.absolute())
    raise FileNotFoundError(path)


def wait_until(condition, timeout, what):
    """Polls until condition() gives something true, and returns it."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.02)


class Daemon:
    """One process that prints `listening …` when it is ready."""

    def __init__(self, name, argv, directory, env=None):
        self.name = name
        self.argv = argv
        self.log_path = directory / f"{name}.log"
        out_path = directory / f"{name}.out"
        with open(out_path, "wb") as out, open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(argv, stdout=out, stderr=log, stdin=subprocess.DEVNULL, env=env)

        def listening():
            if self.process.poll() is not None:
                raise AssertionError(f"{name} ended with {self.process.returncode}:\n{self.log()}")
            return re.search(r"^listening (.*)$", out_path.read_text(), re.M)

        line = wait_until(listening, 30, f"{name} listening")
        self.addresses = dict(pair.split("=", 1) for pair in line.group(1).split())

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        """As a crash: SIGKILL."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout=30):
        """In order: SIGTERM, and the exit status that follows."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end within {timeout} s of SIGTERM:\n{self.log()[-4000:]}")


class Cluster:
    """Coordinator and workers; a context manager that asserts that nothing is left behind."""

    def __init__(self, nodes=0, slots=1, coordinator_flags=(), worker_flags=()):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-test."))
        self.coordinator_flags = list(coordinator_flags)
        self.worker_flags = list(worker_flags)
        self.coordinator = None
        self.workers = {}
        self._nodes, self._slots = nodes, slots

    def __enter__(self):
        try:
            self.start_coordinator()
            for i in range(self._nodes):
                self.start_worker(f"node-{i + 1}", self._slots)
            self.wait_for_nodes(self._nodes)
        except BaseException:
            self._stop_all()
            raise
        return self

    def __exit__(self, kind, value, trace):
        self._stop_all()
        leftovers = wait_until_gone(self.processes, 10)
        if kind is None:
            assert not leftovers, f"processes left behind: {leftovers}"
            shutil.rmtree(self.directory)
        else:
            print(f"cluster directory kept: {self.directory}")
            for log in sorted(self.directory.glob("*.log")):
                print(f"---- {log.name}\n{log.read_text(errors='replace')[-3000:]}")

    def _stop_all(self):
        errors = []
        for daemon in [*self.workers.values(), self.coordinator]:
            if daemon is not None:
                try:
                    daemon.stop()
                except AssertionError as error:
                    errors.append(str(error))
        for pid, _ in self.processes():
            with contextlib.suppress(ProcessLookupError):
                if errors:
                    os.kill(pid, signal.SIGKILL)
        assert not errors, "\n".join(errors)

    # ---- daemons

    def start_coordinator(self):
        """The first time on free ports; again (after a kill) on the same ones, as an operator would."""
        grpc, http = "127.0.0.1:0", "127.0.0.1:0"
        if self.coordinator is not None:
            grpc, http = (self.coordinator.addresses[k] for k in ("grpc", "http"))
        self.coordinator = Daemon(
            "coordinator",
            [_bin("coordinator/muster-coordinator"), f"--listen={grpc}", f"--http={http}",
             f"--data-dir={self.directory / 'coordinator'}", *self.coordinator_flags],
            self.directory)
        return self.coordinator

    def start_worker(self, name, slots=1, flags=()):
        self.workers[name] = Daemon(
            name,
            [_bin("worker/muster-worker"), f"--coordinator={self.address}", f"--name={name}",
             f"--data-dir={self.directory / name}", f"--slots={slots}", *self.worker_flags, *flags],
            self.directory)
        return self.workers[name]

    @property
    def address(self):
        return self.coordinator.addresses["grpc"]

    @property
    def http(self):
        return self.coordinator.addresses["http"]

    def wait_for_nodes(self, count, timeout=15):
        def ready():
            nodes = json.loads(self.muster("node", "list", "-o", "json").stdout)
            return sum(node.get("state") == "READY" for node in nodes) >= count
        wait_until(ready, timeout, f"{count} nodes ready")

    # ---- the CLI

    def popen(self, *args, **kwargs):
        env = dict(os.environ, MUSTER_COORDINATOR=self.address)
        return subprocess.Popen([_bin("cli/muster"), *map(str, args)], env=env, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                **kwargs)

    def muster(self, *args, check=True, timeout=120):
        process = self.popen(*args)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(f"muster {args} ran past {timeout} s\n{out}\n{err}")
        result = subprocess.CompletedProcess(args, process.returncode, out, err)
        if check and result.returncode != 0:
            raise AssertionError(f"muster {args} exited {result.returncode}\n{out}\n{err}")
        return result

    def write_spec(self, spec):
        path = self.directory / f"{spec['name']}.json"
        path.write_text(json.dumps(spec))
        return str(path)

    def submit(self, spec, *args):
        return self.muster("submit", self.write_spec(spec), "-o", "name", *args).stdout.strip()

    def get(self, job):
        return json.loads(self.muster("get", job, "-o", "json").stdout)

    def describe(self, job):
        return json.loads(self.muster("describe", job, "--ranks", "-o", "json").stdout)

    def wait(self, job, timeout=120, check=True):
        """The finished job as `muster wait -o json` prints it."""
        result = self.muster("wait", job, "-o", "json", check=check, timeout=timeout)
        return json.loads(result.stdout)

    def run(self, spec, *args, timeout=120, check=True):
        result = self.muster("run", self.write_spec(spec), "-o", "json", *args, timeout=timeout, check=check)
        return json.loads(result.stdout)

    def wait_for_state(self, job, state, timeout=30):
        return wait_until(lambda: (j := self.get(job)).get("state") == state and j, timeout,
                          f"{job} {state}")

    def wait_for_step(self, job, step, timeout=60):
        def reached():
            j = self.get(job)
            assert j["state"] not in ("FAILED", "SUCCEEDED", "CANCELLED", "TIMED_OUT"), j
            return int(j.get("progress", {}).get("step", 0)) >= step and j
        return wait_until(reached, timeout, f"{job} at step {step}")

    # ---- processes

    def processes(self):
        """(pid, command line) of everything that runs from this cluster's directory, daemons included."""
        found = []
        marker = str(self.directory).encode()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    continue
                if marker in (entry / "environ").read_bytes() or marker in (entry / "cmdline").read_bytes():
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append((int(entry.name), command.strip()))
        return found

    def rank_pids(self, node=None):
        """Pids of the muster-rank processes, of one node or all."""
        where = str(self.directory / node) if node else str(self.directory)
        pids = []
        for pid, command in self.processes():
            with contextlib.suppress(OSError):
                if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "muster-rank":
                    if where.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                        pids.append(pid)
        return pids


def wait_until_gone(list_processes, timeout):
    deadline = time.monotonic() + timeout
    while (left := list_processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def training_spec(name, **train):
    """A small_cnn job on Fashion-MNIST, as small as a test wants it."""
    resources = train.pop("resources", {"nodes": 1, "ranks_per_node": 1})
    top = {k: train.pop(k) for k in ("restart", "failure_timeout", "grace_period", "backend", "time_limit")
           if k in train}
    spec = {
        "name": name,
        "train": {
            "model": {"name": "small_cnn"},
            "dataset": {"name": "fashion_mnist", "path": "/usr/share/datasets/fashion-mnist"},
            "global_batch": 128,
            "max_steps": 50,
            "optimizer": {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9},
            **train,
        },
        "resources": resources,
        **top,
    }
    return spec
