#include "tests/gpu/ptx/launch_memory.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace muster::ptx {
namespace {

const char* NameOf(Access access) {
  if (access == Access::kAtomic) return "atomic operation";
  return access == Access::kRead ? "read" : "write";
}

}  // namespace

std::string NameOf(const Allocation& allocation) {
  return absl::StrFormat("%s %d at %#x of %d bytes", allocation.host ? "host memory" : "allocation",
                         allocation.number, allocation.begin, allocation.bytes);
}

LaunchMemory::LaunchMemory(const Kernel& kernel, size_t shared_bytes, DeviceMemory& global)
    : kernel_(kernel),
      global_(global),
      last_(kernel.accesses),
      parameters_(kernel.parameter_bytes),
      shared_(shared_bytes),
      shared_shadow_(shared_bytes) {}

Allocation* LaunchMemory::FindAllocation(const Instruction& instruction, Thread& thread,
                                         const Description& access) {
  Allocation* const allocation = global_.Find(access.address);
  if (allocation == nullptr) {
    FailBounds(instruction, thread, access, "all allocations");
    return nullptr;
  }
  const std::string name = NameOf(*allocation);
  if (allocation->freed) {
    thread.Fail(instruction, absl::StatusCode::kFailedPrecondition,
                absl::StrFormat("%s of %d bytes at %#x after free: %s", NameOf(access.access),
                                access.bytes, access.address, name));
    return nullptr;
  }
  const uint64_t offset = access.address - allocation->begin;
  if (allocation->bytes < access.bytes || offset > allocation->bytes - access.bytes) {
    FailBounds(instruction, thread, access,
               absl::StrCat("byte ", static_cast<int64_t>(offset), " of ", name));
    return nullptr;
  }
  return allocation;
}

std::byte* LaunchMemory::FailAlignment(const Instruction& instruction, Thread& thread,
                                       const Description& access) {
  thread.Fail(instruction, absl::StatusCode::kInvalidArgument,
              absl::StrFormat("misaligned %s of %d bytes at %s address %#x", NameOf(access.access),
                              access.bytes, access.space, access.address));
  return nullptr;
}

std::byte* LaunchMemory::FailBounds(const Instruction& instruction, Thread& thread,
                                    const Description& access, const std::string& where) {
  thread.Fail(
      instruction, absl::StatusCode::kOutOfRange,
      absl::StrFormat("%s of %d bytes at %s address %#x is out of bounds: %s",
                      NameOf(access.access), access.bytes, access.space, access.address, where));
  return nullptr;
}

std::byte* LaunchMemory::FailShadow(const Instruction& instruction, Thread& thread,
                                    const Description& access, AccessFault fault, uint64_t other,
                                    const std::string& where) {
  if (fault == AccessFault::kUninitialized) {
    thread.Fail(instruction, absl::StatusCode::kFailedPrecondition,
                absl::StrFormat("read of %d uninitialised bytes at %s address %#x: %s",
                                access.bytes, access.space, access.address, where));
    return nullptr;
  }
  const bool other_block = other < thread.accessor.block_begin || (other & kOtherBlocks) != 0;
  const std::string whom = (other & kManyThreads) != 0
                               ? "several threads"
                               : absl::StrCat("thread ", other & kThreadMask);
  thread.Fail(instruction, absl::StatusCode::kAborted,
              absl::StrFormat("data race: this %s of %d bytes at %s address %#x and a %s by %s of "
                              "%s block are not ordered: %s",
                              NameOf(access.access), access.bytes, access.space, access.address,
                              fault == AccessFault::kRaceWithWrite ? "write" : "read", whom,
                              other_block ? "another" : "the same", where));
  return nullptr;
}

}  // namespace muster::ptx
