"""A shell session in namespaces of its own, as a user's terminal on an otherwise idle machine."""

import collections
import contextlib
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import tempfile
import termios
import time

from tests.support.cluster import wait_until_gone
from tests.support.daemon import ROOT, binary
from tests.support.namespaces import Holder, Unavailable
from tests.support.screen import Paper, Screen


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
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="muster-sandbox."))
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
    """One bash that runs blocks of commands one after the other; a context manager.

    With `columns`, its stdin, stdout and stderr are a terminal of that width; otherwise stdin is empty, and stdout and
    stderr are one pipe.
    """

    # Reads the names of scripts from one pipe and writes to another one when they have ended; commands inherit neither.
    # On a terminal, Ctrl-C reaches only the foreground, as at a prompt, and the title arrives after all output.
    _LOOP = r"""
        cd {root}
        [ ! -t 0 ] || set -m
        while read -r script <&{scripts}; do
          set -e; . "$script" {scripts}<&- {answers}>&-; set +e
          [ ! -t 0 ] || printf '\033]0;%s\007' "$script" > /dev/tty
          echo >&{answers}
        done"""

    def __init__(self, sandbox, timeout, columns=None):
        self._directory = sandbox.directory
        self._deadline = time.monotonic() + timeout
        self._blocks = 0
        self._script = None
        self._done = True
        self._awaited = collections.Counter()  # texts of the current block
        self._unread = []  # output that has been read but not shown
        self._terminal = columns is not None
        self._seen = Screen(columns) if self._terminal else Paper()
        scripts, self._scripts = os.pipe()
        self._answers, answers = os.pipe()
        session = ["setsid", "--ctty"] if self._terminal else []
        argv = [*sandbox.prefix(), *session, "/bin/bash", "--norc", "--noprofile", "-c",
                self._LOOP.format(root=sandbox.root, scripts=scripts, answers=answers)]
        env = sandbox.environment()
        if self._terminal:
            self._output, output = pty.openpty()
            termios.tcsetwinsize(output, (24, columns))
            stdin, env["TERM"] = output, "xterm"
        else:
            (self._output, output), stdin = os.pipe(), subprocess.DEVNULL
        self._bash = subprocess.Popen(argv, stdin=stdin, stdout=output, stderr=output, env=env,
                                      pass_fds=[scripts, answers])
        for fd in (scripts, answers, output):
            os.close(fd)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        os.close(self._scripts)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._bash.wait(1)  # otherwise it ends with the sandbox
        os.close(self._answers)
        os.close(self._output)

    def output(self):
        """The output of the current block so far; background jobs may still write."""
        while self._unread or select.select([self._output], [], [], 0)[0]:
            if not self._read():
                break
        return self._seen.text()

    def run(self, commands):
        """Runs the commands; returns their output. Raises Failed if a command fails or the session's time is over."""
        self.start(commands)
        return self.finish()

    def start(self, commands):
        self.output()
        self._seen.start_block()
        self._done = False
        self._awaited.clear()
        self._blocks += 1
        self._script = self._directory / f"block-{self._blocks}.sh"
        self._script.write_text(commands)
        os.write(self._scripts, f"{self._script}\n".encode())

    def finish(self):
        while not self._ended():
            self._wait("the commands did not end in time")
        return self.output()

    def wait_for(self, text):
        """Waits until the running block shows the text, if only for a moment. Raises Failed if it ends before.

        A text that was waited for already must be shown once more.
        """
        self._awaited[text] += 1
        while self._seen.text().count(text) < self._awaited[text]:
            if self._ended():
                raise Failed(f"{text!r} was not shown; output:\n{self.output()}")
            self._wait(f"{text!r} was not shown in time")

    def type(self, keys):
        os.write(self._output, keys.encode())

    def _ended(self):
        """Whether the block has ended and its output has been read."""
        if not self._done:
            return False
        if self._terminal:
            return self._seen.title == str(self._script)
        return not self._unread and not select.select([self._output], [], [], 0)[0]

    def _wait(self, problem):
        """Waits for output or the end of the block."""
        if self._unread:
            self._read()
            return
        fds = [self._output] if self._done else [self._answers, self._output]
        ready = select.select(fds, [], [], max(0, self._deadline - time.monotonic()))[0]
        if not ready:
            raise Failed(f"{problem}; output:\n{self.output()}")
        if self._answers not in ready:
            self._read()
        elif os.read(self._answers, 4096):
            self._done = True
        else:
            raise Failed(f"a command failed; output:\n{self.output()}")

    def _read(self):
        """Reads up to the next carriage return, so that every state of a redrawn line is seen. False at the end."""
        if not self._unread:
            with contextlib.suppress(OSError):  # no program has the terminal open
                self._unread = re.split(rb"(?=\r)", os.read(self._output, 4096))
        if not self._unread:
            return False
        data = self._unread.pop(0)
        self._seen.feed(data)
        return bool(data)
