// For the two sides of NcclOwner: what its callers hand to its thread.
#ifndef MUSTER_WORKER_COLLECTIVES_NCCL_NCCL_TASK_H_
#define MUSTER_WORKER_COLLECTIVES_NCCL_NCCL_TASK_H_

#include <functional>

#include "absl/status/status.h"
#include "kernels/device_stream.h"
#include "worker/collectives/nccl/nccl_owner.h"
#include "worker/collectives/operation.h"

namespace muster::collectives {

// What one call of the communicator asks for.
struct NcclOwner::Task {
  Operation operation;
  std::function<absl::Status()> call;     // by the owner's thread, in place of an operation
  kernels::DeviceStream::Mark after = 0;  // of the computation
  bool recorded = false;                  // with the device's calls
  // Guarded by the owner's mutex.
  bool begun = false;
  bool queued = false;                  // in the stream
  kernels::DeviceStream::Mark end = 0;  // there
  bool done = false;
  absl::Status status;
};

}  // namespace muster::collectives

#endif  // MUSTER_WORKER_COLLECTIVES_NCCL_NCCL_TASK_H_
