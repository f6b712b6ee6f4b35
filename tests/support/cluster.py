"""A real cluster on loopback for tests: coordinator and workers as processes, in a temporary directory."""

import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from tests.support.daemon import ROOT, Daemon, binary, wait_until

__all__ = ["ROOT", "Cluster", "Daemon", "binary", "command_spec", "parse_time", "shell_spec",
           "training_spec", "wait_until"]

@dataclasses.dataclass
class Site:
    """Where and how a daemon runs; by default on this machine, as a child of the test."""

    data_dir: pathlib.Path
    host: str = "127.0.0.1"
    program: str = ""  # replaces the built binary
    prefix: tuple = ()  # command prefix, e.g. nsenter
    env: dict = None


def lasting_ports(count):
    """Free ports of loopback below those that Linux chooses from, so that they are still free when a daemon starts again."""
    ports = set()
    while len(ports) < count:
        port = random.randrange(10_000, 20_000)
        with socket.socket() as attempt, contextlib.suppress(OSError):
            attempt.bind(("127.0.0.1", port))
            ports.add(port)
    return ports


class Cluster:
    """Coordinator and workers; a context manager that asserts that no process is left behind."""

    def __init__(self, nodes=0, slots=1, coordinator_flags=(), worker_flags=()):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-test."))
        self.coordinator_flags = list(coordinator_flags)
        self.worker_flags = list(worker_flags)
        self.coordinator = None
        self.workers = {}
        self.resources = contextlib.ExitStack()  # resources that the daemons need while they run
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
        self.resources.close()
        for pid, _ in self.processes():
            with contextlib.suppress(ProcessLookupError):
                if errors:
                    os.kill(pid, signal.SIGKILL)
        assert not errors, "\n".join(errors)

    # ---- daemons

    def start_coordinator(self, **site):
        """Starts it on free ports the first time, and on the same ports after a kill, as an operator would."""
        site = dataclasses.replace(self.site("coordinator"), **site)
        if self.coordinator is None:
            grpc, http = (f"{site.host}:{port}" for port in ((0, 0) if site.prefix else lasting_ports(2)))
        else:
            grpc, http = (self.coordinator.addresses[k] for k in ("grpc", "http"))
        self.coordinator = self._start(
            "coordinator", site, "coordinator/muster-coordinator", f"--listen={grpc}", f"--http={http}",
            *self.coordinator_flags)
        return self.coordinator

    def start_worker(self, name, slots=1, flags=(), **site):
        """`site`: differences from site(name), e.g. the command prefix."""
        site = dataclasses.replace(self.site(name), **site)
        self.workers[name] = self._start(
            name, site, "worker/muster-worker", f"--coordinator={self.address}", f"--name={name}",
            f"--http={site.host}:0", f"--slots={slots}", *self.worker_flags, *flags)
        return self.workers[name]

    def site(self, name):
        """Where the daemon of that name runs."""
        return Site(data_dir=self.directory / name, env=self.environment())

    def environment(self):
        """Environment of daemons and clients, with the coordinator's token in the cluster's directory."""
        return dict(os.environ, MUSTER_TOKEN_DIR=str(self.directory / "tokens"))

    def _start(self, name, site, program, *flags):
        argv = [site.program or binary(program), *flags, f"--data-dir={site.data_dir}"]
        return Daemon(name, argv, self.directory, site.env, site.prefix)

    @property
    def address(self):
        return self.coordinator.addresses["grpc"]

    @property
    def http(self):
        return self.coordinator.addresses["http"]

    def wait_for_nodes(self, count, timeout=15):
        wait_until(lambda: sum(node.get("state") == "READY" for node in self.nodes()) >= count, timeout,
                   f"{count} nodes ready")

    # ---- the CLI

    def command(self, *args):
        return [binary("cli/muster"), *map(str, args)]

    def client_env(self):
        return dict(self.environment(), MUSTER_COORDINATOR=self.address)

    def popen(self, *args, **kwargs):
        return subprocess.Popen(self.command(*args), env=self.client_env(), text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kwargs)

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

    def nodes(self):
        return json.loads(self.muster("node", "list", "-o", "json").stdout)

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

    def processes(self, node=""):
        """(pid, command line) of all processes that use this cluster's or node's directory, including daemons."""
        found = []
        marker = str(self.directory / node).encode()
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


def parse_time(text):
    """A time from `-o json` output in seconds; its fraction may have any number of digits."""
    return datetime.datetime.fromisoformat(text).timestamp()


def fashion_mnist():
    """Folder of the data set; under Bazel with a shortened test set (small_test_set.py)."""
    short = pathlib.Path.cwd() / "tests/support/fashion_mnist"
    return str(short) if short.is_dir() else "/usr/share/datasets/fashion-mnist"


def training_spec(name, **train):
    """Spec of a small small_cnn job on Fashion-MNIST."""
    resources = train.pop("resources", {"nodes": 1, "ranks_per_node": 1})
    top = {k: train.pop(k) for k in ("restart", "failure_timeout", "grace_period", "backend", "time_limit")
           if k in train}
    spec = {
        "name": name,
        "train": {
            "model": {"name": "small_cnn"},
            "dataset": {"name": "fashion_mnist", "path": fashion_mnist()},
            "global_batch": 32,
            "max_steps": 50,
            "optimizer": {"name": "sgd", "learning_rate": 0.05, "momentum": 0.9},
            **train,
        },
        "resources": resources,
        **top,
    }
    return spec


def command_spec(name, *argv, nodes=1, ranks=1, **top):
    """Spec of a command job."""
    return {"name": name, "command": list(argv), "resources": {"nodes": nodes, "ranks_per_node": ranks}, **top}


def shell_spec(name, script, **kwargs):
    """Spec of a command job that runs a shell script."""
    return command_spec(name, "/bin/bash", "-c", script, **kwargs)
