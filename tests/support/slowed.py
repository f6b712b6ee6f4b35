"""Slows down a process for tests, by stopping it for a share of the time."""

import contextlib
import os
import signal
import threading


class Slowed:
    """Context manager in which the process runs for 1 / `slowdown` of each period."""

    def __init__(self, pid, slowdown, period_s=0.05):
        self.pid = pid
        self._run_s = period_s / slowdown
        self._stop_s = period_s - self._run_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._interrupt)

    def _interrupt(self):
        with contextlib.suppress(ProcessLookupError):
            while not self._over.wait(self._run_s):
                os.kill(self.pid, signal.SIGSTOP)
                self._over.wait(self._stop_s)
                os.kill(self.pid, signal.SIGCONT)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *unused):
        self._over.set()
        self._thread.join()
