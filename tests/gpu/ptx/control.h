// Handlers of control flow, and of the checks that the decoder inserts.
#ifndef MUSTER_TESTS_GPU_PTX_CONTROL_H_
#define MUSTER_TESTS_GPU_PTX_CONTROL_H_

#include <cstddef>

#include "tests/gpu/ptx/instruction.h"

namespace muster::ptx {

// Branches by `offset`. The predicate is in slot 0.
const Instruction* Jump(const Instruction& instruction, Thread& thread);
const Instruction* JumpIf(const Instruction& instruction, Thread& thread);
const Instruction* JumpUnless(const Instruction& instruction, Thread& thread);

const Instruction* Exit(const Instruction& instruction, Thread& thread);
const Instruction* Barrier(const Instruction& instruction, Thread& thread);
const Instruction* Trap(const Instruction& instruction, Thread& thread);

// Sets slot 0, which records whether a register is initialised, to `offset`.
const Instruction* SetFlag(const Instruction& instruction, Thread& thread);
// Stops the thread with a fault if slot 0 is zero.
const Instruction* CheckFlag(const Instruction& instruction, Thread& thread);
// The same if the predicate in slot 1 is `offset`.
const Instruction* CheckFlagIf(const Instruction& instruction, Thread& thread);

// Moves between a register and `elements` registers of `bits` bits, the lowest bits first; null if
// there is no such handler. Slots: destinations, then sources.
Handler FindPack(size_t elements, int bits);
Handler FindUnpack(size_t elements, int bits);

// Whether a handler ends or redirects the flow of control.
inline bool IsJump(Handler run) { return run == Jump || run == JumpIf || run == JumpUnless; }
inline bool HasNext(Handler run) { return run != Jump && run != Exit && run != Trap; }

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_CONTROL_H_
