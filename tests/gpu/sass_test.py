"""Machine code of our CUDA kernels for an H100 or H200, without a GPU: no family of kernels is worse than its line in
sass_exceptions.txt or, without a line, exceeds a limit of sass_limits.py."""

import pathlib
import unittest

from tests.gpu import sass, sass_limits
from tests.gpu.sass_limits import excesses, is_regression

LIBRARY = pathlib.Path("kernels/cuda/libmuster-cuda.so")
EXCEPTIONS = pathlib.Path(__file__).with_name("sass_exceptions.txt")


class SassTest(unittest.TestCase):
    def test_kernels_keep_their_limits(self):
        tools = sass_limits.find_tools()
        if tools is None:
            self.skipTest("no cuobjdump and nvdisasm in /usr/local/cuda/bin or .venv-tests; run tests/support/setup_venv.sh")
        kernels = sass.disassemble(LIBRARY, tools, sass_limits.ARCHITECTURE)
        self.assertGreater(len(kernels), 150)
        allowed = sass_limits.parse(EXCEPTIONS.read_text())
        found = excesses(kernels)
        regressions = {key: value for key, value in found.items() if is_regression(key[0], value, allowed.get(key))}
        improved = [key for key in allowed if found.get(key) != allowed[key] and key not in regressions]
        if improved:
            print("write sass_exceptions.txt again, because these have improved:", *improved, sep="\n")
        self.assertFalse(regressions, "kernels exceed limits:\n" + sass_limits.table(regressions))

    def test_table_can_be_read(self):
        worst = {("registers", "ABody"): 90, ("calls", "ABody BTerms"): 1}
        self.assertEqual(sass_limits.parse(sass_limits.HEADER + sass_limits.table(worst)), worst)


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

    def test_counts_only_loops_with_wide_loads_in_kernels_of_wide_vectors(self):
        code = program("0 LDG.E.128 R4, [R2.64]", "10 FADD R9, R9, R4", "20 BRA 0x0",
                       *[f"{i:x}0 LDG.E R{8 + i}, [R2.64]" for i in range(3, 7)], "70 FADD R9, R9, R11", "80 BRA 0x30")
        self.assertEqual(sass.Kernel("BlockKernel<PixelSumsBody<T<float, 4>, 4> >", 32, 0, code).loads_in_flight(), 1)
        self.assertEqual(sass.Kernel("BlockKernel<PixelSumsBody<T<float, 1>, 1> >", 32, 0, code).loads_in_flight(), 4)

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
                                 ("wide_loads", family): 0, ("loads_in_flight", family): 0})
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
