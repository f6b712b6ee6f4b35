// Finds registers that may be read before they are written.
#ifndef MUSTER_TESTS_GPU_PTX_DEFINEDNESS_H_
#define MUSTER_TESTS_GPU_PTX_DEFINEDNESS_H_

#include <cstdint>
#include <set>
#include <vector>

#include "tests/gpu/ptx/instruction.h"

namespace muster::ptx {

// How an instruction uses its slots: the first `writes` are destinations, the others up to `slots`
// are sources.
struct SlotUse {
  uint8_t writes = 0;
  uint8_t slots = 0;
};

// The slots that an instruction of `code` reads although there is a path to it that does not write
// them. The slots in `defined` are defined from the start.
std::set<uint32_t> FindPossiblyUndefined(const std::vector<Instruction>& code,
                                         const std::vector<SlotUse>& uses, uint32_t slots,
                                         const std::vector<uint32_t>& defined);

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_DEFINEDNESS_H_
