"""deploy/quickstart.sh: accuracy, time, exit status, and that no process is left behind."""

import contextlib
import os
import pathlib
import re
import subprocess
import time
import unittest

from tests.support.cluster import ROOT


def command_line(process):
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_text(errors="replace")
    return ""


class QuickstartTest(unittest.TestCase):
    def test_accuracy_and_time(self):
        started = time.monotonic()
        result = subprocess.run([ROOT / "deploy/quickstart.sh"], text=True, capture_output=True, check=False,
                                timeout=1200, env=dict(os.environ))
        print(result.stdout, result.stderr, f"{time.monotonic() - started:.1f} s in all")
        self.assertEqual(result.returncode, 0)
        left = [pid for pid in pathlib.Path("/proc").glob("[0-9]*") if "muster-quickstart" in command_line(pid)]
        self.assertEqual(left, [], "processes left behind")
        accuracy = float(re.search(r"test accuracy (0\.\d+)", result.stdout).group(1))
        self.assertGreaterEqual(accuracy, 0.910)
