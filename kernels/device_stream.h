// A second stream of a device beside the one that it computes in.
#ifndef MUSTER_KERNELS_DEVICE_STREAM_H_
#define MUSTER_KERNELS_DEVICE_STREAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::kernels {

// For one thread, which has entered it, but for what says otherwise. Nothing here waits for the
// device. Errors: INTERNAL with the device's own words; they may be of anything queued earlier. The
// device outlives its streams.
class DeviceStream {
 public:
  // A place in the order of work. Marks of one stream grow from 1; 0 is before all of it.
  using Mark = uint64_t;

  virtual ~DeviceStream() = default;

  // Once by the thread, before all else: makes the device the thread's own.
  virtual absl::Status Enter() = 0;
  // The cudaStream_t.
  virtual void* native() = 0;

  // The end of what the device has been given to compute so far. By the thread that computes, which
  // need not enter.
  virtual absl::StatusOr<Mark> MarkCompute() = 0;
  // What this stream is given from now on begins when the computation has reached `mark`.
  virtual absl::Status AwaitCompute(Mark mark) = 0;

  // The end of what this stream has been given so far.
  virtual absl::StatusOr<Mark> Record() = 0;
  virtual absl::StatusOr<bool> Reached(Mark mark) = 0;
  // What the device is given to compute from now on begins when this stream has reached `mark`. By
  // the thread that computes.
  virtual absl::Status ComputeAwaits(Mark mark) = 0;

  // Whether the device records its calls: from MarkCompute to ComputeAwaits what this stream is
  // given is recorded with them, which the thread that computes is not to do meanwhile. A mark of
  // what was recorded is for ComputeAwaits alone. By the thread that computes.
  virtual bool Recording() = 0;

  virtual absl::Status Copy(void* to, const void* from, size_t bytes) = 0;

  // The device's memory. Any thread. RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* data) = 0;

  // A word of the host's memory, 0 at first, that kernels read at the same address. Any thread.
  virtual std::atomic<uint32_t>& flag() = 0;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DEVICE_STREAM_H_
