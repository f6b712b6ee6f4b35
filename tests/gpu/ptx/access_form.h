// Loads, stores and conversions of addresses.
#ifndef MUSTER_TESTS_GPU_PTX_ACCESS_FORM_H_
#define MUSTER_TESTS_GPU_PTX_ACCESS_FORM_H_

#include <string_view>

#include "tests/gpu/ptx/instruction.h"

namespace muster::ptx {

struct AccessForm {
  Handler run = nullptr;
  bool load = false;
  std::string_view space;  // global, shared, param or, for generic addresses, empty
  int elements = 1;        // elements of the vector
  int bits = 0;            // bits of an element
};

// The form of an opcode that begins with ld. or st.; `run` is null if it is unsupported. Slots: the
// vector's elements and then the address for a load; the address and then the elements for a store.
AccessForm FindAccessForm(std::string_view opcode);

// The handler of an atomic operation on global memory; null if it is unsupported. Slots: the
// destination, the address, the operand.
Handler FindAtomic(std::string_view opcode);

// Orders the thread's accesses before and after it for other blocks (membar.gl).
const Instruction* Fence(const Instruction& instruction, Thread& thread);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_ACCESS_FORM_H_
