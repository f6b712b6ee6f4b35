// Communicators by the name of their backend, and the one that fits a job's placement.
#ifndef MUSTER_WORKER_COLLECTIVES_FACTORY_H_
#define MUSTER_WORKER_COLLECTIVES_FACTORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "worker/collectives/communicator.h"

namespace muster::collectives {

// One group by one backend: shm, gloo, nccl or loopback. A group of one rank needs none of them but
// nccl, whatever the name. Blocks until all ranks of the group have called. INVALID_ARGUMENT; what
// the backends return.
absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(absl::string_view backend,
                                                                 const GroupOptions& options);

// Where a job's ranks are, and which of them this one is.
struct WorldOptions {
  std::string backend = "auto";  // auto, shm, gloo, nccl, hierarchical, loopback
  uint32_t rank = 0;
  uint32_t world_size = 1;
  // Ranks are numbered node by node. One entry when all nodes have equally many.
  std::vector<uint32_t> ranks_on_node;
  KeyStore* store = nullptr;  // of the job's generation; outlives the communicator
  std::string interface_address;
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration timeout = absl::Seconds(30);
  // As in GroupOptions.
  const NcclParts* nccl = nullptr;
  std::function<absl::Status()> cancelled;
};

// The WORLD communicator of a generation. auto: nccl where ranks compute on GPUs; else shm on one
// node, gloo between nodes of one rank each, hierarchical between others. The lowest rank of each
// group that this takes draws its id and publishes it under unique-id/GROUP/INDEX (WORLD/0,
// LOCAL/node, CROSS/local rank). Blocks until all ranks have called. INVALID_ARGUMENT: an unknown
// backend, or one that cannot span the nodes; DEADLINE_EXCEEDED and UNAVAILABLE name ranks; what
// options.store returns.
absl::StatusOr<std::unique_ptr<Communicator>> CreateWorldCommunicator(const WorldOptions& options);

// All ranks once more, between their GPUs' memories, by options.nccl, whatever options.backend
// says. Its id is under unique-id/DEVICES/0. Blocks until all ranks have called. Errors as of
// CreateNccl.
absl::StatusOr<std::unique_ptr<Communicator>> CreateDeviceCommunicator(const WorldOptions& options);

// The ranks of this rank's node, as a group of its own beside the world's, in the order of the
// world: shm, nccl between GPUs, or the one backend that is named. Its id is under
// unique-id/NODE/node; the LOCAL groups are the hierarchical backend's own. Blocks until all ranks
// of the node have called. Errors as of CreateWorldCommunicator.
absl::StatusOr<std::unique_ptr<Communicator>> CreateNodeCommunicator(const WorldOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_WORKER_COLLECTIVES_FACTORY_H_
