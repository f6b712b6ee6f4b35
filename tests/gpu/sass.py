"""Machine code of the kernels in a CUDA library, as NVIDIA's cuobjdump prints it (SASS)."""

import dataclasses
import os
import re
import subprocess

# Words of a kernel's name that do not identify its source: launchers and element types.
_COMMON = {"BlockKernel", "ItemKernel", "float", "double", "Bfloat16", "Float16"}
_INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);", re.M)


@dataclasses.dataclass
class Instruction:
    address: int
    opcode: str
    operands: str

    def registers(self):
        return {int(register) for register in re.findall(r"\bR(\d+)\b", self.operands)}

    def loads(self):
        """Whether this loads from global memory."""
        return self.opcode.startswith("LDG")

    def loads_wide(self):
        """Whether this loads 16 bytes from global memory."""
        return self.loads() and ".128" in self.opcode

    def loaded(self):
        """Registers that a load writes."""
        first = re.match(r"(?:P\d, )?R(\d+)", self.operands)
        if first is None:
            return set()
        count = 4 if ".128" in self.opcode else 2 if ".64" in self.opcode else 1
        return set(range(int(first[1]), int(first[1]) + count))


@dataclasses.dataclass
class Kernel:
    """One instance of a kernel, with the resources that a thread uses."""
    name: str       # demangled, without namespaces and parameters
    registers: int
    stack: int      # bytes of the stack and of local memory, which is slow
    code: list[Instruction]

    def family(self):
        """The name without launchers, element types and numbers."""
        return " ".join(word for word in re.findall(r"[A-Za-z_]\w*", self.name) if word not in _COMMON)

    def calls(self):
        """Number of calls; the only functions that are not inlined are helpers of the compiler, such as division."""
        return sum(instruction.opcode.startswith("CALL") for instruction in self.code)

    def processes_wide_vectors(self):
        """Whether the template's parameters are an element type and as many elements as 16 bytes hold."""
        return bool(re.search(r"\b(float, 4|Bfloat16, 8|Float16, 8)\b", self.name))

    def loads_wide(self):
        return any(map(Instruction.loads_wide, self.code))

    def loads_in_flight(self):
        """The maximum number of loads before the first use of a loaded value, over all innermost loops that load. In a
        kernel of wide vectors, other loops only add up partial sums, and do not count."""
        loops = self._innermost_loops()
        if self.processes_wide_vectors():
            loops = [loop for loop in loops if any(map(Instruction.loads_wide, loop))]
        return max(map(_in_flight, loops), default=0)

    def _innermost_loops(self):
        """Bodies of the loops that contain loads but no other such loop."""
        index = {instruction.address: i for i, instruction in enumerate(self.code)}
        ranges = []
        for end, instruction in enumerate(self.code):
            target = re.search(r"0x([0-9a-f]+)", instruction.operands)
            if not instruction.opcode.startswith("BRA") or target is None:
                continue
            begin = index.get(int(target[1], 16), end)
            if begin < end and any(i.loads() for i in self.code[begin:end]):
                ranges.append((begin, end))
        return [self.code[begin:end] for begin, end in ranges
                if not any((b, e) != (begin, end) and begin <= b and e <= end for b, e in ranges)]


def _in_flight(code):
    """Loads return in order: the use of a loaded value waits for its load and for all earlier ones."""
    outstanding, most = [], 0
    for instruction in code:
        loaded = instruction.loaded() if instruction.loads() else set()
        used = instruction.registers() - loaded
        waits = [i for i, registers in enumerate(outstanding) if registers & (used | loaded)]
        if waits:
            outstanding = outstanding[waits[-1] + 1:]
        if loaded:
            outstanding.append(loaded)
            most = max(most, len(outstanding))
    return most


def find_tools(*folders):
    """The first folder that contains cuobjdump and nvdisasm; None if there is none."""
    for folder in folders:
        if all(os.access(folder / tool, os.X_OK) for tool in ("cuobjdump", "nvdisasm")):
            return folder
    return None


def disassemble(library, tools, architecture):
    """The kernels that a library contains for an architecture such as sm_90a."""
    def cuobjdump(*options):
        return subprocess.run([tools / "cuobjdump", *options, "-arch", architecture, library], check=True, text=True,
                              stdout=subprocess.PIPE, env={"PATH": f"{tools}:/usr/bin:/bin"}).stdout

    usage = dict(re.findall(r"Function (\S+):\n\s*(REG:.*)", cuobjdump("--dump-resource-usage")))
    pieces = re.split(r"\n\s+Function : (\S+)\n", cuobjdump("--dump-sass"))
    code = dict(zip(pieces[1::2], pieces[2::2]))
    names = list(usage)
    demangled = subprocess.run(["c++filt", "-p"], input="\n".join(names), check=True, text=True,
                               stdout=subprocess.PIPE).stdout.splitlines()

    def kernel(mangled, name):
        name = re.sub(r"muster::kernels::|cuda::|\(anonymous namespace\)::", "", name)
        used = {resource: int(value) for resource, value in re.findall(r"(\w+):(\d+)", usage[mangled])}
        instructions = [Instruction(int(address, 16), opcode, operands)
                        for address, opcode, operands in _INSTRUCTION.findall(code[mangled])]
        return Kernel(name, used["REG"], used["STACK"] + used["LOCAL"], instructions)

    return [kernel(mangled, name) for mangled, name in zip(names, demangled)]
