"""A shell session in namespaces of its own, as a user's terminal on an otherwise idle machine."""

import contextlib
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

from tests.support.cluster import wait_until_gone
from tests.support.daemon import ROOT, binary
from tests.support.namespaces import Holder, Unavailable

DONE = "the block has ended"


class Failed(Exception):
    """A block of commands failed or did not end; the message contains its output."""


class Sandbox(Holder):
    """A network with only loopback, so that fixed ports are free; all processes in it end with it.

    `root` looks like a clone of the repository in which the programs were built. A context manager; raises
    namespaces.Unavailable if the machine does not permit namespaces.
    """

    def __init__(self):
        for tool in ("ip", "nsenter", "unshare"):
            if shutil.which(tool) is None:
                raise Unavailable(f"{tool} is not installed")
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        super().__init__([*user, "--net", "--mount", "--pid", "--mount-proc"], "set -e\nip link set lo up", (),
                         (*(["--user", "--preserve-credentials"] if user else []), "--net", "--mount", "--pid"))
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-docs."))
        self.root, self.home, self.tmp = (self.directory / name for name in ("muster", "home", "tmp"))
        for path in (self.root, self.home, self.tmp):
            path.mkdir()
        (self.root / "bazel-bin").symlink_to(pathlib.Path(binary("cli/muster")).parents[1])
        for name in ("deploy", "examples"):
            (self.root / name).symlink_to(ROOT / name)

    def close(self):
        super().close()
        shutil.rmtree(self.directory)

    def environment(self):
        return {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            # The default is below the home directory in the user database.
            "MUSTER_TOKEN_DIR": str(self.home / ".muster/tokens"),
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "TMPDIR": str(self.tmp),
        }

    def leftovers(self, timeout=10):
        """Processes that have not ended within the timeout, and files in the temporary directory."""
        return [*wait_until_gone(self.processes, timeout).values(), *map(str, self.tmp.rglob("*"))]


class Session:
    """One bash that runs blocks of commands one after the other; a context manager."""

    def __init__(self, sandbox, timeout):
        self._directory = sandbox.directory
        self._deadline = time.monotonic() + timeout
        self._blocks = 0
        self._bash = subprocess.Popen([*sandbox.prefix(), "/bin/bash", "--norc", "--noprofile"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=sandbox.environment())
        self._send(f"cd {sandbox.root}")

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        with contextlib.suppress(BrokenPipeError):
            self._bash.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._bash.wait(1)  # otherwise it ends with the sandbox
        self._bash.stdout.close()

    def _send(self, line):
        self._bash.stdin.write(f"{line}\n".encode())
        self._bash.stdin.flush()

    def run(self, commands):
        """Runs the commands; returns a function that returns their output so far: background jobs may still write.

        Raises Failed if a command fails or the session's time is over.
        """
        self._blocks += 1
        script, out = (self._directory / f"block-{self._blocks}.{end}" for end in ("sh", "out"))
        script.write_text(commands)
        self._send(f"set -e; . {script} < /dev/null > {out} 2>&1; set +e; echo {DONE}")

        def output():
            return out.read_text(errors="replace") if out.exists() else ""

        answer = b""
        while not answer.endswith(DONE.encode() + b"\n"):
            if not select.select([self._bash.stdout], [], [], max(0, self._deadline - time.monotonic()))[0]:
                raise Failed(f"the commands did not end in time; output:\n{output()}")
            more = os.read(self._bash.stdout.fileno(), 4096)
            if not more:
                raise Failed(f"a command failed; output:\n{output()}{answer.decode(errors='replace')}")
            answer += more
        return output
