"""Limits of the machine code of our CUDA kernels, and the kernels that exceed them.

After a change of kernels, from the root of the tree:

    bazel build //kernels/cuda:libmuster-cuda
    python3 -m tests.gpu.sass_limits bazel-bin/kernels/cuda/libmuster-cuda.so > tests/gpu/sass_exceptions.txt
"""

import pathlib
import sys

from tests.gpu import sass
from tests.support.daemon import ROOT

ARCHITECTURE = "sm_90a"   # H100 and H200
MOST_REGISTERS = 80       # a thread; three blocks of 256 threads per multiprocessor
LEAST_LOADS_IN_FLIGHT = 4
# Families of kernels that read large arrays in a loop.
REDUCTIONS = ("PixelSumsBody", "ReduceBody", "PieceNormsBody")
# By limit, how the worse of two values is found.
WORSE = {"registers": max, "stack": max, "wide_loads": min, "loads_in_flight": min, "calls": max}
HEADER = f"""\
# Kernels that exceed a limit, by family: the kernel's name without launchers, element types and numbers. Each line has the
# worst value of a family's kernels. Written by sass_limits.py; sass_test.py fails if a value gets worse.
#
#   registers        of a thread; the limit is {MOST_REGISTERS}
#   stack            bytes of stack and local memory per thread; the limit is 0
#   wide_loads       0: a kernel of vectors of 16 bytes that loads none of them at once
#   loads_in_flight  in the innermost loop of a reduction, of loads of 16 bytes where its vectors have them; at least
#                    {LEAST_LOADS_IN_FLIGHT}
#   calls            call sites of helpers: divisions of 64-bit integers or doubles, and square roots of doubles
"""


def find_tools():
    """The folder with cuobjdump and nvdisasm; None if there is none."""
    packages = sorted((ROOT / ".venv-tests").glob("lib/python*/site-packages/nvidia/*/bin"))
    return sass.find_tools(pathlib.Path("/usr/local/cuda/bin"), *packages)


def excesses(kernels):
    """{(limit, family): value} of the families that exceed a limit; the worst value of each."""
    worst = {}

    def exceed(limit, kernel, value):
        key = (limit, kernel.family())
        worst[key] = WORSE[limit](worst.get(key, value), value)

    for kernel in kernels:
        if kernel.registers > MOST_REGISTERS:
            exceed("registers", kernel, kernel.registers)
        if kernel.stack > 0:
            exceed("stack", kernel, kernel.stack)
        if kernel.calls() > 0:
            exceed("calls", kernel, kernel.calls())
        if kernel.processes_wide_vectors() and not kernel.loads_wide():
            exceed("wide_loads", kernel, 0)
        if kernel.family().startswith(REDUCTIONS) and kernel.loads_in_flight() < LEAST_LOADS_IN_FLIGHT:
            exceed("loads_in_flight", kernel, kernel.loads_in_flight())
    return worst


def is_regression(limit, value, allowed):
    """Whether a family's value is worse than the allowed one; None: the family must not exceed the limit."""
    return allowed is None or (value != allowed and WORSE[limit](value, allowed) == value)


def table(worst):
    order = list(WORSE)
    lines = sorted(worst.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))
    return "".join(f"{limit:15} {value:4}  {family}\n" for (limit, family), value in lines)


def parse(text):
    """{(limit, family): value} of a table."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            limit, value, family = line.split(maxsplit=2)
            found[limit, family] = int(value)
    return found


def main():
    tools = find_tools()
    if tools is None:
        sys.exit("no cuobjdump and nvdisasm; run tests/support/setup_venv.sh")
    print(HEADER + "\n" + table(excesses(sass.disassemble(sys.argv[1], tools, ARCHITECTURE))), end="")


if __name__ == "__main__":
    main()
