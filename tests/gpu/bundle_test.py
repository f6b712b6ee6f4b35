"""The programs in the bundle of GPU tests run outside the build tree. GPU cases are skipped without a GPU."""

import pathlib
import subprocess
import tarfile
import tempfile
import unittest

BUNDLE = pathlib.Path("tests/gpu/muster-gpu-kit.tar.xz").absolute()


class GpuBundleTest(unittest.TestCase):
    def test_all_programs_run(self):
        with tempfile.TemporaryDirectory() as directory, tarfile.open(BUNDLE) as tar:
            tar.extractall(directory)
            commands = [[test] for test in sorted(pathlib.Path(directory).glob("*/bin/*_contract_test"))]
            self.assertNotEqual(commands, [])
            tools = next(pathlib.Path(directory).glob("*/bin"))
            commands += [[tools / "memory_bench", "--megabytes=1"], [tools / "make_cifar10", f"{directory}/data", "20", "4"]]
            commands += [[tools / "allreduce_bench", "--max-bytes=4KiB", "--rounds=1"]]
            for command in commands:
                result = subprocess.run(command, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        check=False)
                print(result.stdout)
                self.assertEqual(result.returncode, 0, command[0].name)
