#include "tests/gpu/ptx/control.h"

#include <cstdint>

#include "tests/gpu/ptx/thread.h"

namespace muster::ptx {
namespace {

template <typename T, int kElements>
const Instruction* Pack(const Instruction& instruction, Thread& thread) {
  uint64_t packed = 0;
  for (int i = 0; i < kElements; ++i) {
    packed |= uint64_t{thread.Get<T>(instruction.slots[1 + i])} << (8 * sizeof(T) * i);
  }
  thread.Set(instruction.slots[0], packed);
  return &instruction + 1;
}

template <typename T, int kElements>
const Instruction* Unpack(const Instruction& instruction, Thread& thread) {
  const uint64_t packed = thread.Get<uint64_t>(instruction.slots[kElements]);
  for (int i = 0; i < kElements; ++i) {
    thread.Set(instruction.slots[i], static_cast<T>(packed >> (8 * sizeof(T) * i)));
  }
  return &instruction + 1;
}

}  // namespace

const Instruction* Jump(const Instruction& instruction, Thread&) {
  return &instruction + instruction.offset;
}

const Instruction* JumpIf(const Instruction& instruction, Thread& thread) {
  return &instruction + (thread.Get<bool>(instruction.slots[0]) ? instruction.offset : 1);
}

const Instruction* JumpUnless(const Instruction& instruction, Thread& thread) {
  return &instruction + (thread.Get<bool>(instruction.slots[0]) ? 1 : instruction.offset);
}

const Instruction* Exit(const Instruction& instruction, Thread& thread) {
  return thread.StopAt(instruction, Stop::kExit);
}

const Instruction* Barrier(const Instruction& instruction, Thread& thread) {
  return thread.StopAt(instruction, Stop::kBarrier);
}

const Instruction* Trap(const Instruction& instruction, Thread& thread) {
  return thread.Fail(instruction, absl::StatusCode::kAborted, "trap");
}

const Instruction* SetFlag(const Instruction& instruction, Thread& thread) {
  thread.Set(instruction.slots[0], instruction.offset);
  return &instruction + 1;
}

const Instruction* CheckFlag(const Instruction& instruction, Thread& thread) {
  if (thread.Get<uint64_t>(instruction.slots[0]) != 0) return &instruction + 1;
  return thread.Fail(instruction, absl::StatusCode::kFailedPrecondition,
                     "read of an uninitialised register");
}

const Instruction* CheckFlagIf(const Instruction& instruction, Thread& thread) {
  const bool applies = thread.Get<bool>(instruction.slots[1]) == (instruction.offset != 0);
  return applies ? CheckFlag(instruction, thread) : &instruction + 1;
}

Handler FindPack(size_t elements, int bits) {
  if (elements == 2 && bits == 16) return Pack<uint16_t, 2>;
  if (elements == 4 && bits == 16) return Pack<uint16_t, 4>;
  if (elements == 2 && bits == 32) return Pack<uint32_t, 2>;
  return nullptr;
}

Handler FindUnpack(size_t elements, int bits) {
  if (elements == 2 && bits == 16) return Unpack<uint16_t, 2>;
  if (elements == 4 && bits == 16) return Unpack<uint16_t, 4>;
  if (elements == 2 && bits == 32) return Unpack<uint32_t, 2>;
  return nullptr;
}

}  // namespace muster::ptx
