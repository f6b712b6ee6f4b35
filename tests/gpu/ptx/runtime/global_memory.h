// The memory of all devices, and pinned host memory, which every device accesses.
#ifndef MUSTER_TESTS_GPU_PTX_RUNTIME_GLOBAL_MEMORY_H_
#define MUSTER_TESTS_GPU_PTX_RUNTIME_GLOBAL_MEMORY_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/gpu/ptx/memory.h"

namespace muster::ptx {

enum class Place {
  kPageable,  // host memory that the runtime does not know
  kPinned,
  kDevice,  // including freed memory and the bytes around an allocation
};

// Guarded by the runtime's mutex. Errors are those of DeviceMemory.
class GlobalMemory {
 public:
  explicit GlobalMemory(int devices);

  DeviceMemory& of(int device) { return *devices_[static_cast<size_t>(device)]; }
  Place PlaceOf(const void* data);
  // The device that the memory at `data` belongs to; null for host memory.
  DeviceMemory* DeviceOf(const void* data);

  // Page-aligned host memory that all devices access.
  absl::StatusOr<void*> AllocateHost(size_t bytes);
  absl::Status FreeHost(void* data);

  // For copies: pageable memory passes.
  absl::Status CheckRead(const void* from, size_t bytes);
  absl::Status CheckWrite(const void* to, size_t bytes);
  // For libraries that compute on the device: pageable memory is refused.
  absl::Status CheckDeviceRead(const void* from, size_t bytes);
  absl::Status CheckDeviceWrite(const void* to, size_t bytes);
  void MarkInitialized(const void* to, size_t bytes);

 private:
  // The memory that knows the address; the first device's for addresses that none knows.
  DeviceMemory& MemoryOf(const void* data);

  std::vector<std::unique_ptr<DeviceMemory>> devices_;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_RUNTIME_GLOBAL_MEMORY_H_
