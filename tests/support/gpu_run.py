"""Tests of tests/gpu/run.sh."""

import contextlib
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile
import unittest

PARTS = ["contracts", "throughput", "links", "scaling", "nodes", "torch", "jpeg", "memory", "nccl",
         "training", "graphs", "bandwidth", "models", "kernels", "accuracy", "sanitizer"]

NVIDIA_SMI = """
case " $* " in
  *" -lms "*) for clock in 300 1700 1755 1760; do echo "$clock, 2619, $((clock * 2 / 5)), 61"; done; exec sleep 1000 ;;
  *--query-gpu=driver_version*) echo 580.159.04 ;;
  *--query-gpu=name\\ *) for ((gpu = 0; gpu < ${FAKE_GPUS:-1}; ++gpu)); do echo "NVIDIA H100 80GB HBM3"; done ;;
  *" -p2p "*) printf '      GPU0  GPU1\\n GPU0   X    OK\\n GPU1   OK    X\\n' ;;
  *" topo "*) printf '      GPU0  GPU1\\nGPU0   X   NV18\\nGPU1  NV18   X\\n' ;;
esac
"""


class GpuRunTest(unittest.TestCase):
    """Runs of a kit's tests/gpu/run.sh with a fake nvidia-smi."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "results"
        self.temporary = self.folder / "tmp"
        self.temporary.mkdir()
        self.kit = self.folder / "muster-gpu-kit"
        self.make_kit()
        self.script = self.kit / "tests/gpu/run.sh"
        self.tools = self.folder / "tools"
        self.tools.mkdir()
        self.tool("nvidia-smi", NVIDIA_SMI)

    def make_kit(self):
        """Makes the folder self.kit."""
        raise NotImplementedError

    @staticmethod
    def write_program(path, script):
        path.unlink(missing_ok=True)  # it may be a hard link
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)
        return path

    def tool(self, name, script):
        """A program in PATH."""
        return self.write_program(self.tools / name, script)

    def environment(self, **changes):
        return {"PATH": f"{self.tools}:{os.environ['PATH']}", "HOME": str(self.folder), "PYTHON": "/bin/false",
                "TMPDIR": str(self.temporary), "COMMON_DATA": str(self.folder / "common"), **changes}

    def command(self, *arguments):
        return [self.script, "--out", self.out, *arguments]

    def run_script(self, *arguments, env=None):
        result = subprocess.run(self.command(*arguments), text=True, check=False, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, env=env or self.environment())
        print(result.stdout)
        return result

    def parts(self):
        return json.loads((self.out / "results.json").read_text())["parts"]

    def states(self):
        return {name: (part["state"], part["reason"]) for name, part in self.parts().items()}

    def archived(self):
        with tarfile.open(f"{self.out}.tar.gz") as tar:
            return set(tar.getnames())

    def assert_nothing_left(self):
        """No process of the run is left, and no temporary file."""
        self.assertEqual(list(self.temporary.iterdir()), [])
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (process / "environ").read_bytes()
                self.assertNotIn(b"%s/muster-gpu." % str(self.temporary).encode(), environment, process)
