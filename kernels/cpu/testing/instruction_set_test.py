"""Checks that a CPU with only baseline x86-64 can run the kernels' baseline objects.

Two properties together keep code for AVX2, AVX-512 and AMX out of paths that run before the CPU is
known to support it:

1. Each symbol that an object compiled for an instruction set exports contains the namespace of that
   set. The linker therefore never uses an inline function or template of such an object instead of
   the same one of a baseline object.
2. No baseline object contains an instruction of those sets: neither one with VEX or EVEX encoding,
   whatever its registers, nor a tile instruction.

Both checks are also run on inputs that must fail them.
"""

import re
import subprocess
import unittest

FOLDER = "kernels/cpu/"
SETS = {
    FOLDER + "libavx2.a": "avx2",
    FOLDER + "libavx512.a": "avx512",
    FOLDER + "libavx512_bf16.a": "avx512_bf16",
    FOLDER + "libamx.a": "amx",
}
BASELINE = [FOLDER + name for name in ("libconvolution.a", "libdevice.a", "libkernel_table.a", "libplain.a",
                                       "librender_image.a", "libresize_filter.a", "libscalar_kernels.a")] + [
    "kernels/libdevice_interface.a", "kernels/libhost_memory_device.a", "kernels/libthread_pool.a",
    "kernels/reference/libkernels.a",
]
SHARED_INLINE = FOLDER + "libshared_inline.a"

# An instruction in objdump's output without its bytes: a mnemonic after an address.
INSTRUCTION = re.compile(r"^\s*[0-9a-f]+:\s+(?:\{\w+\}\s+)?([a-z]\w*)(.*)$", re.MULTILINE)
NOT_VECTOR = {"verr", "verw"}
TILES = {"ldtilecfg", "sttilecfg", "tilerelease", "tilezero", "tileloadd", "tileloaddt1", "tilestored"}


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def shared_symbols(archive, namespace):
    """Symbols that `archive` defines for other objects and that do not name the namespace."""
    names = [line.split(maxsplit=2)[2] for line in
             output("nm", "--demangle", "--defined-only", "--extern-only", archive).splitlines()
             if len(line.split(maxsplit=2)) == 3]
    assert names, archive
    return [name for name in names if not re.search(r"\bmuster::kernels::%s::" % namespace, name)]


def advanced_instructions(archive):
    """Instructions beyond baseline x86-64."""
    found = set()
    count = 0
    for match in INSTRUCTION.finditer(output("objdump", "--disassemble", "--no-show-raw-insn", archive)):
        count += 1
        mnemonic, operands = match.groups()
        vector = mnemonic.startswith("v") and mnemonic not in NOT_VECTOR
        if vector or mnemonic in TILES or re.search(r"%(ymm|zmm|tmm|k[0-7])", operands):
            found.add(mnemonic)
    assert count > 0, archive
    return found


class InstructionSetTest(unittest.TestCase):
    def test_objects_of_an_instruction_set_share_no_symbol(self):
        for archive, namespace in SETS.items():
            with self.subTest(archive):
                self.assertEqual(shared_symbols(archive, namespace), [])

    def test_baseline_objects_contain_only_baseline_instructions(self):
        for archive in BASELINE:
            with self.subTest(archive):
                self.assertEqual(advanced_instructions(archive), set())

    def test_detects_a_shared_inline_function(self):
        symbols = shared_symbols(SHARED_INLINE, "avx2")
        self.assertIn("muster::kernels::SharedSum(float const*)", symbols)
        self.assertNotEqual(advanced_instructions(SHARED_INLINE), set())

    def test_disassembly_contains_each_instruction_set(self):
        for name, mnemonic in {"avx2": "vfmadd231ps", "avx512": "kmov[bdqw]", "avx512_bf16": "vdpbf16ps",
                               "amx": "tdpbf16ps"}.items():
            archive = f"{FOLDER}lib{name}.a"
            with self.subTest(archive):
                found = advanced_instructions(archive)
                self.assertTrue(any(re.fullmatch(mnemonic, each) for each in found), sorted(found))


if __name__ == "__main__":
    unittest.main()
