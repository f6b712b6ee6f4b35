"""deploy/quickstart.sh as a user runs it: accuracy, time, exit status, nothing left."""

import os
import re
import subprocess
import time
import unittest

from tests.support.cluster import ROOT


class QuickstartTest(unittest.TestCase):
    def test_accuracy_and_time(self):
        started = time.monotonic()
        result = subprocess.run([ROOT / "deploy/quickstart.sh"], text=True, capture_output=True, check=False,
                                timeout=1200, env=dict(os.environ))
        print(result.stdout, result.stderr, f"{time.monotonic() - started:.1f} s in all")
        self.assertEqual(result.returncode, 0)
        accuracy = float(re.search(r"test accuracy (0\.\d+)", result.stdout).group(1))
        self.assertGreaterEqual(accuracy, 0.910)
