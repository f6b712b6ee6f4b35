"""Machine code of our CUDA kernels for an H100 or H200, without a GPU.

Kernels that exceed a limit are listed in sass_exceptions.txt with their present values. A failure prints the lines to
change; a value that has improved is printed, too, and its line should be tightened.
"""

import pathlib
import unittest

from tests.gpu import sass
from tests.support.daemon import ROOT

LIBRARY = pathlib.Path("kernels/cuda/libmuster-cuda.so")
EXCEPTIONS = pathlib.Path(__file__).with_name("sass_exceptions.txt")
ARCHITECTURE = "sm_90a"
MOST_REGISTERS = 80       # a thread; three blocks of 256 threads per multiprocessor
LEAST_LOADS_IN_FLIGHT = 4
# Families of kernels that read large arrays in a loop.
REDUCTIONS = ("PixelSumsBody", "ReduceBody", "PieceNormsBody")


def exceptions():
    """{(limit, family): value} of sass_exceptions.txt."""
    found = {}
    for line in EXCEPTIONS.read_text().splitlines():
        if line and not line.startswith("#"):
            limit, value, family = line.split(maxsplit=2)
            found[limit, family] = int(value)
    return found


def excesses(kernels):
    """{(limit, family): value} of the families that exceed a limit; the worst value of each."""
    worst = {}

    def exceed(limit, kernel, value, is_worse):
        key = (limit, kernel.family())
        worst[key] = value if key not in worst else is_worse(worst[key], value)

    for kernel in kernels:
        if kernel.registers > MOST_REGISTERS:
            exceed("registers", kernel, kernel.registers, max)
        if kernel.stack > 0:
            exceed("stack", kernel, kernel.stack, max)
        if kernel.calls() > 0:
            exceed("calls", kernel, kernel.calls(), max)
        if kernel.processes_wide_vectors() and not kernel.loads_wide():
            exceed("wide_loads", kernel, 0, min)
        if kernel.family().startswith(REDUCTIONS) and kernel.loads_in_flight() < LEAST_LOADS_IN_FLIGHT:
            exceed("loads_in_flight", kernel, kernel.loads_in_flight(), min)
    return worst


def is_regression(limit, value, allowed):
    if allowed is None:
        return True
    return value < allowed if limit in ("wide_loads", "loads_in_flight") else value > allowed


class SassTest(unittest.TestCase):
    def test_kernels_keep_their_limits(self):
        packages = sorted((ROOT / ".venv-tests").glob("lib/python*/site-packages/nvidia/*/bin"))
        tools = sass.find_tools(pathlib.Path("/usr/local/cuda/bin"), *packages)
        if tools is None:
            self.skipTest("no cuobjdump and nvdisasm in /usr/local/cuda/bin or .venv-tests; run tests/support/setup_venv.sh")
        kernels = sass.disassemble(LIBRARY, tools, ARCHITECTURE)
        self.assertGreater(len(kernels), 150)
        allowed, found = exceptions(), excesses(kernels)
        regressions = [f"{limit:15} {value:4}  {family}" for (limit, family), value in sorted(found.items())
                       if is_regression(limit, value, allowed.get((limit, family)))]
        improved = [f"{limit:15} {found.get((limit, family), 'none'):>4}  {family}"
                    for (limit, family), value in sorted(allowed.items()) if found.get((limit, family)) != value]
        if improved:
            print("improved:", *improved, sep="\n")
        self.assertFalse(regressions, "kernels exceed limits:\n" + "\n".join(regressions))


def program(*lines):
    """Instructions given as "ADDRESS OPCODE OPERANDS"."""
    parts = (line.split(maxsplit=2) for line in lines)
    return [sass.Instruction(int(address, 16), opcode, operands) for address, opcode, operands in parts]


class LoadsInFlightTest(unittest.TestCase):
    def loads(self, *lines):
        return sass.Kernel("ItemKernel<Body>", 32, 0, program(*lines)).loads_in_flight()

    def test_counts_loads_before_the_first_use(self):
        self.assertEqual(self.loads("0 LDG.E.128 R4, [R2.64]", "10 LDG.E R8, [R2.64+0x10]", "20 FADD R9, R9, R8",
                                    "30 LDG.E R8, [R2.64+0x20]", "40 FADD R9, R9, R5", "50 BRA 0x0"), 2)

    def test_a_use_waits_for_earlier_loads(self):
        self.assertEqual(self.loads("0 LDG.E R4, [R2.64]", "10 FADD R9, R9, R4", "20 LDG.E R5, [R2.64]",
                                    "30 FADD R9, R9, R5", "40 BRA 0x0"), 1)

    def test_ignores_outer_loops_and_straight_code(self):
        self.assertEqual(self.loads("0 LDG.E R4, [R2.64]", "10 LDG.E R5, [R2.64]", "20 LDG.E R6, [R2.64]",
                                    "30 FADD R9, R4, R5", "40 BRA 0x20", "50 BRA 0x0"), 1)

    def test_families_are_without_types_and_widths(self):
        kernel = sass.Kernel("BlockKernel<PixelSumsBody<StatisticsTerms<Bfloat16, 8>, 8, 2> >", 32, 0, [])
        self.assertEqual(kernel.family(), "PixelSumsBody StatisticsTerms")
        self.assertTrue(kernel.processes_wide_vectors())


class ExcessesTest(unittest.TestCase):
    def test_finds_each_excess(self):
        narrow = program("0 LDG.E R4, [R2.64]", "10 FADD R9, R9, R4", "20 BRA 0x0", "30 CALL.REL.NOINC 0x80")
        kernel = sass.Kernel("BlockKernel<PixelSumsBody<SomeTerms<float, 4>, 4, 2> >", 81, 8, narrow)
        family = "PixelSumsBody SomeTerms"
        found = excesses([kernel])
        self.assertEqual(found, {("registers", family): 81, ("stack", family): 8, ("calls", family): 1,
                                 ("wide_loads", family): 0, ("loads_in_flight", family): 1})
        wide = program(*[f"{i:x}0 LDG.E.128 R{8 + 4 * i}, [R2.64]" for i in range(4)], "40 FADD R9, R9, R8", "50 BRA 0x0")
        self.assertEqual(excesses([sass.Kernel(kernel.name, 80, 0, wide)]), {})

    def test_regressions(self):
        self.assertTrue(is_regression("calls", 1, None))
        self.assertTrue(is_regression("registers", 91, 90))
        self.assertFalse(is_regression("registers", 89, 90))
        self.assertTrue(is_regression("loads_in_flight", 1, 2))
        self.assertFalse(is_regression("loads_in_flight", 3, 2))


if __name__ == "__main__":
    unittest.main()
