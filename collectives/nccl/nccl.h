// The nccl backend: collectives between GPUs on one or several nodes, with NVIDIA NCCL.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "collectives/nccl/nccl_config.h"
#include "collectives/nccl/nccl_library.h"
#include "kernels/device_stream.h"

namespace muster::collectives {

struct NcclParts {
  std::shared_ptr<const NcclLibrary> library;
  // Creates a stream on this rank's GPU for one communicator.
  std::function<absl::StatusOr<std::unique_ptr<kernels::DeviceStream>>()> make_stream;
  // Stream whose flag is Communicator::failed_flag() of all communicators created with these parts;
  // null: each communicator has its own. Set where an update depends on several communicators.
  std::shared_ptr<kernels::DeviceStream> flag_stream = nullptr;
  // Maximum number of blocks of a communicator's kernels, unless the user's environment sets it.
  int max_ctas = kNcclMaxCtas;
};

// Requires options.nccl. Blocks until all ranks of the group have called; a group may have one
// rank. Buffers of operations and allocations are device memory. Allocations are memory that NCCL
// moves without a copy: a window known to all ranks, or registered memory, where the NCCL version
// supports it. An allocation waits for operations issued before it; it is collective, so a rank
// without memory makes the others wait.
//
// An operation starts when the device has completed the work enqueued before the call. Wait blocks
// the host. A Send or Recv starts when a caller waits for any Send or Recv issued so far, joins it,
// polls it, or drops its Work: NCCL runs them concurrently only as one group, and one that started
// before its counterpart was issued could block the stream forever. While the device captures a
// graph, these calls return when the group is captured.
//
// Each communicator of a process has its own stream. If several run concurrently, their kernels
// must fit on the GPU together, as NCCL requires.
//
// Bit equality: NCCL reduces each element once and distributes the result unchanged, so all ranks
// have identical bits. The order of the sum depends on the ranks' topology, the count, and the
// algorithm, protocol and channels that NCCL selects for them, which are the same for the same
// ranks in the same places. The exception is in-switch reduction (NVLS): with some drivers the sum
// differs from call to call, equally on all ranks; NCCL_NVLS_ENABLE=0 disables it.
//
// With options.levels_of, an AllReduce is a reduce-scatter within the node, an all-reduce between
// nodes and an all-gather within the node, one after the other in the stream, on communicators that
// are split off this one and end with it.
//
// Errors: INVALID_ARGUMENT without options.nccl, or if levels_of does not divide the number of
// ranks; DEADLINE_EXCEEDED, and UNAVAILABLE if NCCL lost a peer, name the rank where the others can
// identify it; FAILED_PRECONDITION for requests that NCCL refuses (two ranks on one GPU), INTERNAL
// for its other failures, with NCCL's message; errors of options.cancelled and the key store.
absl::StatusOr<std::unique_ptr<Communicator>> CreateNccl(const GroupOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_H_
