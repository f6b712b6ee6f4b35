// Global memory of the interpreted GPU. Device addresses are host addresses, so that memcpy and
// memset access it. Shadow cells record which bytes are initialised and which thread last accessed
// each byte.
#ifndef MUSTER_TESTS_GPU_PTX_MEMORY_H_
#define MUSTER_TESTS_GPU_PTX_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "tests/gpu/ptx/allocation.h"

namespace muster::ptx {

// Thread-safe, except that an allocation must not be freed or copied to while a kernel that uses it
// runs.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Returns `bytes` (at least 1) of uninitialised memory, aligned to 256 bytes and to no more.
  // Inaccessible pages surround it, so that host code that leaves its page crashes.
  // RESOURCE_EXHAUSTED if the system has no memory.
  absl::StatusOr<void*> Allocate(size_t bytes);
  // Ends an allocation. Its addresses are never reused: later accesses are reported as use after
  // free. NOT_FOUND if `pointer` is not the start of a live allocation.
  absl::Status Free(void* pointer);

  // Lets kernels access host memory, which counts as initialised (cudaHostAlloc, cudaHostRegister).
  // The caller keeps it alive until UnregisterHost. ALREADY_EXISTS if it overlaps another
  // allocation.
  absl::Status RegisterHost(void* pointer, size_t bytes);
  absl::Status UnregisterHost(void* pointer);

  // Checks for copies by the runtime: OUT_OF_RANGE beyond an allocation's bounds,
  // FAILED_PRECONDITION for freed or uninitialised memory, NOT_FOUND for an address outside all
  // allocations. Zero bytes are always accessible.
  absl::Status CheckRead(const void* from, size_t bytes);
  absl::Status CheckWrite(const void* to, size_t bytes);
  // Records a write by the runtime. `to` has passed CheckWrite.
  void MarkInitialized(const void* to, size_t bytes);

  // Whether the address is in a live allocation of device memory (registered host memory is none).
  bool IsDevice(const void* pointer);
  // Bytes and number of live allocations, without host memory.
  size_t allocated_bytes() const;
  size_t allocations() const;

  // For the interpreter: the allocation that contains the address or whose guard zone does; null if
  // there is none. The object of device memory lives as long as this memory, also after Free.
  Allocation* Find(uintptr_t address);

  // For the interpreter: numbers that order the accesses of kernels; see shadow.h. Kernels run one
  // at a time.
  uint64_t NextPhase() { return ++phase_; }

 private:
  absl::Status CheckRange(const void* pointer, size_t bytes, bool read);

  mutable absl::Mutex mutex_;
  std::map<uintptr_t, std::unique_ptr<Allocation>> allocations_
      ABSL_GUARDED_BY(mutex_);  // by first address
  size_t allocated_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t live_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t made_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t phase_ = 0;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_MEMORY_H_
