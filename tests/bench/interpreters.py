"""Finds the Pythons that have PyTorch, for benchmarks that compare Muster with it."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEFAULT = [str(ROOT / ".venv/bin/python"), "/usr/bin/python3"]


def torch_version(python):
    """The version that this interpreter imports, or None."""
    result = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], text=True,
                            capture_output=True, check=False)
    return result.stdout.strip() if result.returncode == 0 else None


def with_torch(candidates):
    """{path: version} of those among `candidates`, or DEFAULT, that have PyTorch; ends the program when none has."""
    pythons = {p: v for p in candidates or DEFAULT if os.path.exists(p) and (v := torch_version(p))}
    if not pythons:
        sys.exit("no interpreter with PyTorch; tests/bench/peers/setup.sh makes one")
    return pythons
