// Tasks that callers of NcclCommThread pass to its thread; shared by the two parts of its
// implementation.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_TASK_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_TASK_H_

#include <functional>

#include "absl/status/status.h"
#include "collectives/nccl/nccl_comm_thread.h"
#include "collectives/operation.h"
#include "kernels/device_stream.h"

namespace muster::collectives {

// One call on the communicator.
struct NcclCommThread::Task {
  Operation operation;
  std::function<absl::Status()> call;     // run by the owner's thread instead of an operation
  kernels::DeviceStream::Mark after = 0;  // computation to wait for
  bool captured = false;                  // captured in the device's graph
  // Guarded by the owner's mutex.
  bool begun = false;
  bool queued = false;                  // enqueued on the stream
  kernels::DeviceStream::Mark end = 0;  // completion in the stream
  bool done = false;
  absl::Status status;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_TASK_H_
