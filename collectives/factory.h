// Communicators by the name of their backend, and the one that fits a job's placement.
#ifndef MUSTER_COLLECTIVES_FACTORY_H_
#define MUSTER_COLLECTIVES_FACTORY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// One group by one backend: shm, gloo, mpi, nccl or loopback. A group of one rank needs none of
// them but nccl, whatever the name. Blocks until all ranks of the group have called.
// INVALID_ARGUMENT; what the backends return.
absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(absl::string_view backend,
                                                                 const GroupOptions& options);

// Where a job's ranks are, and which of them this one is.
struct WorldOptions {
  std::string backend = "auto";  // auto, shm, gloo, mpi, nccl, hierarchical, loopback
  uint32_t rank = 0;
  uint32_t world_size = 1;
  // Ranks are numbered node by node. One entry when all nodes have equally many.
  std::vector<uint32_t> ranks_on_node;
  KeyStore* store = nullptr;  // of the job's generation; outlives the communicator
  std::string interface_address;
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration timeout = absl::Seconds(30);
  // auto, on, off: whether an AllReduce sums inside each node first and then between nodes. auto
  // leaves it to NCCL, and takes it between CPUs where nodes have several ranks.
  std::string hierarchical = "auto";
  // As in GroupOptions.
  const NcclParts* nccl = nullptr;
  std::function<absl::Status()> cancelled;
};

// The WORLD communicator of a generation. auto: nccl where ranks compute on GPUs; else shm on one
// node, gloo between nodes of one rank each, hierarchical between others. The lowest rank of each
// group that this takes draws its id and publishes it under unique-id/GROUP/INDEX (WORLD/0,
// LOCAL/node, CROSS/local rank). Blocks until all ranks have called. INVALID_ARGUMENT: an unknown
// backend, or one that cannot span the nodes; DEADLINE_EXCEEDED and UNAVAILABLE name ranks; what
// options.store returns. With nccl, hierarchical "on" wants nodes of equally many ranks, else it is
// an INVALID_ARGUMENT.
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

// Any of the world's ranks as a group of their own: group `index` of those that are called `name`
// (PIPELINE, DATA_PARALLEL, but none of the names above), whose ranks are `members` in this order.
// The backend is the one that is named, else nccl between GPUs, shm on one node, gloo. Its id is
// under unique-id/NAME/INDEX. Blocks until all members have called, each with the same group.
// Errors as of CreateWorldCommunicator; INVALID_ARGUMENT also where this rank is no member.
absl::StatusOr<std::unique_ptr<Communicator>> CreateGroupCommunicator(
    const WorldOptions& options, absl::string_view name, uint32_t index,
    std::vector<uint32_t> members);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_FACTORY_H_
