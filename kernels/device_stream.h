// A second stream of a device, in addition to its compute stream.
#ifndef MUSTER_KERNELS_DEVICE_STREAM_H_
#define MUSTER_KERNELS_DEVICE_STREAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::kernels {

// For use by the thread that called Enter, unless stated otherwise. No method waits for the device.
// Errors: INTERNAL with the driver's message, possibly of work that was queued earlier. Must not
// outlive the device.
class DeviceStream {
 public:
  // A point in the order of work. Marks of one stream increase from 1; 0 is before all work.
  using Mark = uint64_t;

  virtual ~DeviceStream() = default;

  // Makes the device current for the calling thread. Called once by the thread, before other calls.
  virtual absl::Status Enter() = 0;
  // The cudaStream_t.
  virtual void* native() = 0;

  // Records an event after all work submitted to the device's compute stream so far. Called by the
  // compute thread only, which need not call Enter.
  virtual absl::StatusOr<Mark> RecordComputeEvent() = 0;
  // Makes later work on this stream wait until the compute stream has passed `mark`.
  virtual absl::Status AwaitCompute(Mark mark) = 0;

  // Records an event after all work submitted to this stream so far.
  virtual absl::StatusOr<Mark> Record() = 0;
  // Whether this stream has passed `mark`.
  virtual absl::StatusOr<bool> Reached(Mark mark) = 0;
  // Makes later work on the compute stream wait until this stream has passed `mark`. Called by the
  // compute thread only.
  virtual absl::Status MakeComputeWait(Mark mark) = 0;

  // Whether the compute stream is being captured as a CUDA graph. If so, this stream's work between
  // RecordComputeEvent and MakeComputeWait is captured with it, the compute thread must submit none
  // in between, and a captured mark is valid for MakeComputeWait only. Called by the compute
  // thread.
  virtual bool IsCapturing() = 0;

  virtual absl::Status Copy(void* to, const void* from, size_t bytes) = 0;

  // Allocates device memory. Thread-safe. RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* data) = 0;

  // A word in host memory, initially 0, that kernels read at the same address. Thread-safe.
  virtual std::atomic<uint32_t>& flag() = 0;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DEVICE_STREAM_H_
