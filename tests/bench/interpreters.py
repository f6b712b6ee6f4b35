"""Finds Python interpreters with PyTorch, for benchmarks that compare Muster with it."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT = [str(ROOT / ".venv/bin/python"), "/usr/bin/python3"]


def torch_version(python):
    """The PyTorch version that this interpreter imports, or None."""
    result = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], text=True,
                            capture_output=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def with_torch(candidates):
    """{path: version} of the interpreters among `candidates`, or DEFAULT, with PyTorch; exits if there is none."""
    pythons = {p: v for p in candidates or DEFAULT if os.path.exists(p) and (v := torch_version(p))}
    if not pythons:
        sys.exit("no interpreter with PyTorch; run tests/bench/peers/setup.sh")
    return pythons
