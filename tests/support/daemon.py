"""Muster processes for tests, and waiting for conditions."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def binary(path):
    """Path of a built binary, in a test's runfiles or in bazel-bin."""
    for root in (pathlib.Path.cwd(), ROOT, ROOT / "bazel-bin"):
        candidate = root / path
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate.absolute())
    raise FileNotFoundError(path)


def wait_until(condition, timeout, what):
    """Polls until condition() returns a true value, and returns that value.

    A condition that starts a process takes CPU time from what the test waits for, so at most a quarter of the time is
    spent on it.
    """
    deadline = time.monotonic() + timeout
    while True:
        start = time.monotonic()
        value = condition()
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"timed out after {timeout} s waiting for: {what}")
        time.sleep(min(max(0.02, 3 * (now - start)), 0.2))


def child_of(pid):
    """The first process that `pid` started, or None."""
    with contextlib.suppress(OSError):
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else None
    return None


def program_behind(pid):
    """Pid of the program started through nsenter, which is its child if nsenter entered a pid namespace."""
    with contextlib.suppress(OSError):
        if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "nsenter":
            return child_of(pid) or pid
    return pid


class Daemon:
    """A process that prints `listening …` when it is ready.

    Its output is in DIRECTORY/NAME.out, its log in NAME.log. `prefix` is a command prefix, e.g. nsenter.
    """

    def __init__(self, name, argv, directory, env=None, prefix=()):
        self.name = name
        self.argv = argv
        self.log_path = directory / f"{name}.log"
        out_path = directory / f"{name}.out"
        with open(out_path, "wb") as out, open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([*prefix, *argv], stdout=out, stderr=log,
                                            stdin=subprocess.DEVNULL, env=env)

        def listening():
            if self.process.poll() is not None:
                raise AssertionError(f"{name} ended with {self.process.returncode}:\n{self.log()}")
            return re.search(r"^listening (.*)$", out_path.read_text(), re.M)

        line = wait_until(listening, 30, f"{name} listening")
        self.addresses = dict(pair.split("=", 1) for pair in line.group(1).split())
        self.pid = program_behind(self.process.pid)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def signal(self, number):
        if self.process.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        """Simulates a crash with SIGKILL."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout=30):
        """Stops the process with SIGTERM and returns its exit status."""
        self.signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end within {timeout} s of SIGTERM:\n{self.log()[-4000:]}")
