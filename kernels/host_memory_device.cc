#include "kernels/host_memory_device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace muster::kernels {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

void HostMemoryDevice::CopyToDevice(void* to, const void* host, size_t bytes) {
  Copy(to, host, bytes);
}

void HostMemoryDevice::CopyToHost(void* host, const void* from, size_t bytes) {
  Copy(host, from, bytes);
}

void HostMemoryDevice::Copy(void* to, const void* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void HostMemoryDevice::Zero(void* to, size_t bytes) {
  if (bytes > 0) std::memset(to, 0, bytes);
}

absl::StatusOr<void*> HostMemoryDevice::AllocateBytes(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* const data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr) return absl::ResourceExhaustedError("out of memory");
  // Touches all pages here, so that the first step has no page faults, and runs are comparable.
  std::memset(data, 0, rounded);
  return data;
}

void HostMemoryDevice::Free(void* data, size_t) { std::free(data); }

}  // namespace muster::kernels
