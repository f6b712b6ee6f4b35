// For the two sides of NcclCommThread: what its callers hand to its thread.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_TASK_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_TASK_H_

#include <functional>

#include "absl/status/status.h"
#include "collectives/nccl/nccl_comm_thread.h"
#include "collectives/operation.h"
#include "kernels/device_stream.h"

namespace muster::collectives {

// What one call of the communicator asks for.
struct NcclCommThread::Task {
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

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_TASK_H_
