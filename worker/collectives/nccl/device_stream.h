// A stream of a GPU as a communicator needs it.
#ifndef MUSTER_WORKER_COLLECTIVES_NCCL_DEVICE_STREAM_H_
#define MUSTER_WORKER_COLLECTIVES_NCCL_DEVICE_STREAM_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace muster::collectives {

// A second stream beside the one that the device computes in. For one thread, which has entered it,
// but for what says otherwise. Nothing here waits for the device. Errors: INTERNAL with the
// device's own words; they may be of anything queued earlier.
class DeviceStream {
 public:
  // A place in the order of a stream's work. Marks of one stream grow.
  using Mark = uint64_t;

  virtual ~DeviceStream() = default;

  // Once by the thread, before all else: makes the device the thread's own.
  virtual absl::Status Enter() = 0;
  // The cudaStream_t.
  virtual void* native() = 0;

  // The end of what the device has been given to compute so far. By the thread that computes.
  virtual absl::StatusOr<Mark> MarkCompute() = 0;
  // What this stream is given from now on begins when the computation has reached `mark`.
  virtual absl::Status AwaitCompute(Mark mark) = 0;

  // The end of what this stream has been given so far.
  virtual absl::StatusOr<Mark> Record() = 0;
  virtual absl::StatusOr<bool> Reached(Mark mark) = 0;

  virtual absl::Status Copy(void* to, const void* from, size_t bytes) = 0;

  // The device's memory. Any thread. RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<void*> Allocate(size_t bytes) = 0;
  virtual void Free(void* data) = 0;
};

}  // namespace muster::collectives

#endif  // MUSTER_WORKER_COLLECTIVES_NCCL_DEVICE_STREAM_H_
