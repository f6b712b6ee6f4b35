"""Runs a program on a pseudo-terminal."""

import os
import pty
import select
import time


class Terminal:
    """Starts the program at once; its output is read by wait_for and similar calls."""

    def __init__(self, command, env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe(command[0], command, env)
        self.shown = ""

    def _read(self, timeout):
        if not select.select([self.fd], [], [], timeout)[0]:
            return True
        try:
            self.shown += os.read(self.fd, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            return False
        return True

    def wait_for(self, text, timeout=30):
        deadline = time.monotonic() + timeout
        while text not in self.shown:
            if not self._read(0.1) or time.monotonic() > deadline:
                raise AssertionError(f"{text!r} is not in:\n{self.shown}")
        self.shown = self.shown.split(text, 1)[1]

    def type(self, text):
        os.write(self.fd, text.encode())

    def exit_status(self):
        while self._read(1):
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
