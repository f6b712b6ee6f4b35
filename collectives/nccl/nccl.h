// The nccl backend: GPUs of one node or of many.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "collectives/nccl/nccl_library.h"
#include "kernels/device_stream.h"

namespace muster::collectives {

struct NcclParts {
  std::shared_ptr<const NcclLibrary> library;
  // A stream on this rank's GPU, for one communicator.
  std::function<absl::StatusOr<std::unique_ptr<kernels::DeviceStream>>()> make_stream;
};

// Takes options.nccl. Blocks until all ranks of the group have called; a group may be of one rank.
// Addresses in operations are the device's, and so are allocations: memory that NCCL moves without
// a copy, in a window that all ranks know or registered, where its version can. An allocation waits
// for what was issued before, and as the ranks meet in it, one that has no memory keeps the others
// waiting.
//
// An operation begins when the device has computed what it was given before the call. Wait waits on
// the host. A Send or Recv begins when somebody waits for one of those issued, asks whether it is
// done, or drops its Work: NCCL runs them at once only as one group, and one that began before its
// counterpart was issued could stop the stream for good.
//
// Communicators of one process each have their stream. Where several are at work at once their
// kernels must find room on the GPU together, as NCCL demands.
//
// Bit-equality: NCCL reduces each element once and hands the result on unchanged, so all ranks have
// the same bits. The order of the sum follows from the ranks' places, the count, and the algorithm,
// protocol and channels that NCCL takes for them, which the same ranks in the same places find
// again. Not so where the switches between GPUs add (NVLS): on some drivers that sum differs from
// call to call, equally on all ranks; NCCL_NVLS_ENABLE=0 does without.
//
// With options.levels_of an AllReduce is a reduce-scatter on the node, an all-reduce between nodes
// and an all-gather on the node, one after the other in the stream, by communicators that are
// split off this one and end with it.
//
// Errors: INVALID_ARGUMENT without options.nccl, or where levels_of does not divide the ranks;
// DEADLINE_EXCEEDED, and UNAVAILABLE where NCCL lost a peer, name the rank where the others can
// tell; FAILED_PRECONDITION for what NCCL refuses (two ranks on one GPU), INTERNAL for its other
// failures, with its own words; what options.cancelled and the key store return.
absl::StatusOr<std::unique_ptr<Communicator>> CreateNccl(const GroupOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_H_
