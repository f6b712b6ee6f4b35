#include "tests/gpu/ptx/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status.h"

namespace muster::ptx {
namespace {

// The pages of an allocation of device memory: the memory begins kAlignment bytes after an
// inaccessible page, and an inaccessible page follows it.
constexpr size_t kAlignment = 256;

struct Pages {
  uintptr_t begin;  // beginning of the guard page
  size_t bytes;
};

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Pages PagesOf(uintptr_t begin, size_t bytes) {
  const size_t page = PageBytes();
  const size_t accessible = (kAlignment + bytes + page - 1) / page * page;
  return {begin - kAlignment - page, accessible + 2 * page};
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  for (const auto& [begin, allocation] : allocations_) {
    if (allocation->host) continue;
    const Pages pages = PagesOf(begin, allocation->bytes);
    munmap(reinterpret_cast<void*>(pages.begin), pages.bytes);
  }
}

absl::StatusOr<void*> DeviceMemory::Allocate(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  const Pages pages = PagesOf(0, bytes);
  void* const mapped = bytes > SIZE_MAX / 2 ? MAP_FAILED
                                            : mmap(nullptr, pages.bytes, PROT_NONE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  }
  auto* const first = static_cast<char*>(mapped) + PageBytes();
  if (mprotect(first, pages.bytes - 2 * PageBytes(), PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, pages.bytes);
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  }
  const uintptr_t begin = reinterpret_cast<uintptr_t>(first) + kAlignment;
  absl::MutexLock lock(&mutex_);
  allocations_[begin] = std::make_unique<Allocation>(++made_, /*host=*/false, begin, bytes);
  allocated_bytes_ += bytes;
  ++live_;
  return reinterpret_cast<void*>(begin);
}

absl::Status DeviceMemory::Free(void* pointer) {
  absl::MutexLock lock(&mutex_);
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == allocations_.end() || found->second->host) {
    return absl::NotFoundError(absl::StrFormat("%p is not the start of an allocation", pointer));
  }
  Allocation& allocation = *found->second;
  if (allocation.freed) {
    return absl::NotFoundError(
        absl::StrFormat("allocation %d at %p is freed already", allocation.number, pointer));
  }
  allocation.freed = true;
  allocation.shadow = Shadow(0);
  allocated_bytes_ -= allocation.bytes;
  --live_;
  // The pages stay reserved, so that the addresses are not reused, but without memory.
  const Pages pages = PagesOf(allocation.begin, allocation.bytes);
  mmap(reinterpret_cast<void*>(pages.begin), pages.bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  return absl::OkStatus();
}

absl::Status DeviceMemory::RegisterHost(void* pointer, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  absl::MutexLock lock(&mutex_);
  const auto next = allocations_.lower_bound(begin);
  const bool overlaps_next = next != allocations_.end() && next->first < begin + bytes;
  const bool overlaps_previous = next != allocations_.begin() &&
                                 std::prev(next)->first + std::prev(next)->second->bytes > begin;
  if (overlaps_next || overlaps_previous) {
    return absl::AlreadyExistsError(
        absl::StrFormat("host memory at %p overlaps another allocation", pointer));
  }
  auto allocation = std::make_unique<Allocation>(++made_, /*host=*/true, begin, bytes);
  allocation->shadow.MarkInitialized(0, bytes);
  allocations_[begin] = std::move(allocation);
  return absl::OkStatus();
}

absl::Status DeviceMemory::UnregisterHost(void* pointer) {
  absl::MutexLock lock(&mutex_);
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == allocations_.end() || !found->second->host) {
    return absl::NotFoundError(absl::StrFormat("%p is not registered host memory", pointer));
  }
  allocations_.erase(found);
  return absl::OkStatus();
}

Allocation* DeviceMemory::Find(uintptr_t address) {
  absl::MutexLock lock(&mutex_);
  auto next = allocations_.upper_bound(address);
  // The guard page in front of device memory is its own.
  if (next != allocations_.end() && !next->second->host &&
      address >= PagesOf(next->first, next->second->bytes).begin) {
    return next->second.get();
  }
  if (next == allocations_.begin()) return nullptr;
  Allocation& previous = *std::prev(next)->second;
  uintptr_t end = previous.begin + previous.bytes;
  if (!previous.host) {
    const Pages pages = PagesOf(previous.begin, previous.bytes);
    end = pages.begin + pages.bytes;
  }
  return address < end ? &previous : nullptr;
}

absl::Status DeviceMemory::CheckRange(const void* pointer, size_t bytes, bool read) {
  if (bytes == 0) return absl::OkStatus();
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const std::string access =
      absl::StrFormat("%s of %d bytes at %p", read ? "read" : "write", bytes, pointer);
  Allocation* const allocation = Find(address);
  if (allocation == nullptr) {
    return absl::NotFoundError(absl::StrCat(access, ": no allocation has this address"));
  }
  const std::string which =
      absl::StrCat("allocation ", allocation->number, " of ", allocation->bytes, " bytes");
  if (allocation->freed) {
    return absl::FailedPreconditionError(absl::StrCat(access, ": ", which, " is freed"));
  }
  const size_t offset = address - allocation->begin;
  if (address < allocation->begin || bytes > allocation->bytes ||
      offset > allocation->bytes - bytes) {
    return absl::OutOfRangeError(absl::StrFormat(
        "%s is out of bounds: it begins %d bytes after the start of %s", access,
        static_cast<int64_t>(address) - static_cast<int64_t>(allocation->begin), which));
  }
  if (!read) return absl::OkStatus();
  const size_t first = allocation->shadow.FirstUninitialized(offset, bytes);
  if (first == offset + bytes) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(access, ": byte ", first, " of ", which, " is uninitialised"));
}

absl::Status DeviceMemory::CheckRead(const void* from, size_t bytes) {
  return CheckRange(from, bytes, /*read=*/true);
}

absl::Status DeviceMemory::CheckWrite(const void* to, size_t bytes) {
  return CheckRange(to, bytes, /*read=*/false);
}

void DeviceMemory::MarkInitialized(const void* to, size_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(to);
  Allocation* const allocation = Find(address);
  if (allocation == nullptr) return;
  allocation->shadow.MarkInitialized(address - allocation->begin, bytes);
}

bool DeviceMemory::IsDevice(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const Allocation* const allocation = Find(address);
  return allocation != nullptr && !allocation->host && !allocation->freed &&
         address - allocation->begin < allocation->bytes;
}

size_t DeviceMemory::allocated_bytes() const {
  absl::MutexLock lock(&mutex_);
  return allocated_bytes_;
}

size_t DeviceMemory::allocations() const {
  absl::MutexLock lock(&mutex_);
  return live_;
}

}  // namespace muster::ptx
