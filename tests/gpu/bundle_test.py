"""The bundle of GPU tests: what is in it starts away from the build. Their GPU cases skip where there is no GPU."""

import pathlib
import subprocess
import tarfile
import tempfile
import unittest

BUNDLE = pathlib.Path("tests/gpu/muster-gpu-tests.tar.xz").absolute()


class GpuBundleTest(unittest.TestCase):
    def test_all_programs_run(self):
        with tempfile.TemporaryDirectory() as directory, tarfile.open(BUNDLE) as tar:
            tar.extractall(directory)
            programs = sorted(pathlib.Path(directory).glob("*/bin/*"))
            self.assertNotEqual(programs, [])
            for program in programs:
                result = subprocess.run([program], cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        check=False)
                print(result.stdout)
                self.assertEqual(result.returncode, 0, program.name)
