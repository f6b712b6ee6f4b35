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
  // in between, and a captured mark is valid for MakeComputeWait only. Called by the compute thread.
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
