// One instruction in the interpreter's internal form.
#ifndef MUSTER_TESTS_GPU_PTX_INSTRUCTION_H_
#define MUSTER_TESTS_GPU_PTX_INSTRUCTION_H_

#include <array>
#include <cstdint>

namespace muster::ptx {

class Thread;
struct Instruction;

// Executes an instruction and returns the next one; null if the thread stops here.
using Handler = const Instruction* (*)(const Instruction& instruction, Thread& thread);

struct Instruction {
  Handler run = nullptr;
  // Bytes added to an address; for a branch, the distance to its target in instructions.
  int64_t offset = 0;
  // Register slots: destinations first, then sources.
  std::array<uint32_t, 5> slots = {};
  // Index of a memory instruction among those of its kernel.
  uint32_t access = 0;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_INSTRUCTION_H_
