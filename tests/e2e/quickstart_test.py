"""deploy/quickstart.sh: accuracy, time, exit status, output as in README.md, and that no process is left behind."""

import contextlib
import os
import pathlib
import re
import subprocess
import time
import unittest

from tests.support.page import blocks
from tests.support.transcript import difference
from tests.support.cluster import ROOT

FIRST_LINE = "coordinator: listening"


def command_line(process):
    with contextlib.suppress(OSError):
        return (process / "cmdline").read_text(errors="replace")
    return ""


class QuickstartTest(unittest.TestCase):
    def test_accuracy_and_time(self):
        started = time.monotonic()
        result = subprocess.run([ROOT / "deploy/quickstart.sh"], text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, check=False, timeout=1200, env=dict(os.environ))
        print(result.stdout, f"{time.monotonic() - started:.1f} s in all")
        self.assertEqual(result.returncode, 0)
        left = [pid for pid in pathlib.Path("/proc").glob("[0-9]*") if "muster-quickstart" in command_line(pid)]
        self.assertEqual(left, [], "processes left behind")
        accuracy = float(re.search(r"test accuracy (0\.\d+)", result.stdout).group(1))
        self.assertGreaterEqual(accuracy, 0.910)
        shown = [block.text for block in blocks((ROOT / "README.md").read_text()) if block.text.startswith(FIRST_LINE)]
        self.assertEqual(len(shown), 1, "README.md shows the output once")
        real = result.stdout[result.stdout.index(FIRST_LINE):]
        error = difference(shown[0], real)
        self.assertEqual(error, "", error)
