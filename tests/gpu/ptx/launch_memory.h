// The memory that a launch accesses: parameters, shared memory of the current block, and global
// memory.
#ifndef MUSTER_TESTS_GPU_PTX_LAUNCH_MEMORY_H_
#define MUSTER_TESTS_GPU_PTX_LAUNCH_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/gpu/ptx/block_order.h"
#include "tests/gpu/ptx/instruction.h"
#include "tests/gpu/ptx/kernel.h"
#include "tests/gpu/ptx/memory.h"
#include "tests/gpu/ptx/shadow.h"
#include "tests/gpu/ptx/thread.h"

namespace muster::ptx {

enum class Access { kRead, kWrite, kAtomic };

// Generic addresses of the shared and parameter windows have these upper 16 bits; the other
// generic addresses are global. Within their own spaces, addresses count from 0.
inline constexpr int kWindowShift = 48;
inline constexpr uint64_t kSharedWindow = 1;
inline constexpr uint64_t kParameterWindow = 2;

class LaunchMemory {
 public:
  LaunchMemory(const Kernel& kernel, size_t shared_bytes, DeviceMemory& global);

  // The memory of an access of `kBytes` bytes at an address of a space; null after a fault, which
  // the thread records.
  template <Access kAccess, size_t kBytes>
  std::byte* Global(const Instruction& instruction, Thread& thread, uint64_t address);
  template <Access kAccess, size_t kBytes>
  std::byte* Shared(const Instruction& instruction, Thread& thread, uint64_t address);
  template <size_t kBytes>
  std::byte* Parameters(const Instruction& instruction, Thread& thread, uint64_t address);
  template <Access kAccess, size_t kBytes>
  std::byte* Generic(const Instruction& instruction, Thread& thread, uint64_t address);

  std::vector<std::byte>& parameters() { return parameters_; }
  BlockOrder& order() { return order_; }

 private:
  struct Description {
    Access access;
    size_t bytes;
    uint64_t address;
    const char* space;
  };

  // The live allocation that has all bytes; null after a fault.
  Allocation* FindAllocation(const Instruction& instruction, Thread& thread,
                             const Description& access);
  std::byte* FailAlignment(const Instruction& instruction, Thread& thread,
                           const Description& access);
  std::byte* FailBounds(const Instruction& instruction, Thread& thread, const Description& access,
                        const std::string& where);
  std::byte* FailShadow(const Instruction& instruction, Thread& thread, const Description& access,
                        AccessFault fault, uint64_t other, const std::string& where);

  const Kernel& kernel_;
  DeviceMemory& global_;
  std::vector<Allocation*> last_;  // last allocation accessed by each memory instruction
  std::vector<std::byte> parameters_;
  std::vector<std::byte> shared_;
  Shadow shared_shadow_;
  BlockOrder order_;
};

std::string NameOf(const Allocation& allocation);

template <Access kAccess, size_t kBytes>
std::byte* LaunchMemory::Global(const Instruction& instruction, Thread& thread, uint64_t address) {
  Allocation* allocation = last_[instruction.access];
  // An offset before the allocation wraps around to a large one.
  if (allocation == nullptr || address - allocation->begin > allocation->bytes - kBytes ||
      allocation->bytes < kBytes) [[unlikely]] {
    allocation = FindAllocation(instruction, thread, {kAccess, kBytes, address, "global"});
    if (allocation == nullptr) return nullptr;
    last_[instruction.access] = allocation;
  }
  if (address % kBytes != 0) [[unlikely]] {
    return FailAlignment(instruction, thread, {kAccess, kBytes, address, "global"});
  }
  const size_t offset = address - allocation->begin;
  const AccessFault fault =
      kAccess == Access::kRead    ? allocation->shadow.Read(offset, kBytes, thread.accessor)
      : kAccess == Access::kWrite ? allocation->shadow.Write(offset, kBytes, thread.accessor)
                                  : allocation->shadow.Atomic(offset, kBytes, thread.accessor);
  if (fault != AccessFault::kNone) [[unlikely]] {
    return FailShadow(instruction, thread, {kAccess, kBytes, address, "global"}, fault,
                      allocation->shadow.other(), NameOf(*allocation));
  }
  return reinterpret_cast<std::byte*>(address);
}

template <Access kAccess, size_t kBytes>
std::byte* LaunchMemory::Shared(const Instruction& instruction, Thread& thread, uint64_t address) {
  if (address + kBytes > shared_.size() || address + kBytes < address) [[unlikely]] {
    return FailBounds(instruction, thread, {kAccess, kBytes, address, "shared"},
                      "shared memory of " + std::to_string(shared_.size()) + " bytes");
  }
  if (address % kBytes != 0) [[unlikely]] {
    return FailAlignment(instruction, thread, {kAccess, kBytes, address, "shared"});
  }
  // The block's own writes only: shared memory is uninitialised when a block begins.
  Accessor accessor = thread.accessor;
  accessor.launch_begin = accessor.block_begin;
  const AccessFault fault = kAccess == Access::kRead
                                ? shared_shadow_.ReadInBlock(address, kBytes, accessor)
                                : shared_shadow_.Write(address, kBytes, accessor);
  if (fault != AccessFault::kNone) [[unlikely]] {
    return FailShadow(instruction, thread, {kAccess, kBytes, address, "shared"}, fault,
                      shared_shadow_.other(),
                      "shared memory of " + std::to_string(shared_.size()) + " bytes");
  }
  return &shared_[address];
}

template <size_t kBytes>
std::byte* LaunchMemory::Parameters(const Instruction& instruction, Thread& thread,
                                    uint64_t address) {
  const Description access{Access::kRead, kBytes, address, "parameter"};
  for (const Parameter& parameter : kernel_.parameters) {
    if (address - parameter.offset > parameter.bytes - kBytes || parameter.bytes < kBytes) continue;
    if (address % kBytes != 0) return FailAlignment(instruction, thread, access);
    return &parameters_[address];
  }
  return FailBounds(instruction, thread, access, "each parameter");
}

template <Access kAccess, size_t kBytes>
std::byte* LaunchMemory::Generic(const Instruction& instruction, Thread& thread, uint64_t address) {
  const uint64_t window = address >> kWindowShift;
  const uint64_t offset = address & ((uint64_t{1} << kWindowShift) - 1);
  if (window == kSharedWindow) return Shared<kAccess, kBytes>(instruction, thread, offset);
  if (window == kParameterWindow && kAccess == Access::kRead) {
    return Parameters<kBytes>(instruction, thread, offset);
  }
  return Global<kAccess, kBytes>(instruction, thread, address);
}

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_LAUNCH_MEMORY_H_
