#include "kernels/host_memory_device.h"

#include <cstdlib>
#include <cstring>

#include "common/status.h"
#include "kernels/host_allocation.h"

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
  ASSIGN_OR_RETURN(void* const data, AllocateHostArray(bytes));
  // Touches all pages here, so that the first step has no page faults, and runs are comparable.
  std::memset(data, 0, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return data;
}

void HostMemoryDevice::Free(void* data, size_t) { std::free(data); }

}  // namespace muster::kernels
