"""The commands that the wheel installs: each starts the program of its name in this package's bin/."""

import os
import pathlib
import sys

_PACKAGE = pathlib.Path(__file__).resolve().parent


def main():
    program = _PACKAGE / "bin" / pathlib.Path(sys.argv[0]).name
    # PyTorch's wheels bring NVIDIA's libraries, which training on GPUs needs.
    libraries = sorted(map(str, _PACKAGE.parent.glob("nvidia/*/lib")))
    if libraries:
        os.environ.setdefault("MUSTER_CUDA_LIBRARY_PATH", ":".join(libraries))
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{program}: {error.strerror}")
