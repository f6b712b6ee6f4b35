// Creates communicators by backend name, and selects the backend for a job's placement.
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

// Creates a group with one backend: shm, gloo, mpi, nccl or loopback. A group of one rank uses none
// of them except nccl, whatever the name. Blocks until all ranks of the group have called.
// INVALID_ARGUMENT; errors of the backends.
absl::StatusOr<std::unique_ptr<Communicator>> CreateCommunicator(absl::string_view backend,
                                                                 const GroupOptions& options);

// Sets the function that creates groups with the backend mpi. Called before main in programs that
// link //collectives/mpi; without it, that backend is FAILED_PRECONDITION.
using CreateBackend =
    absl::StatusOr<std::unique_ptr<Communicator>> (*)(const GroupOptions& options);
bool RegisterMpi(CreateBackend create);

// Placement of a job's ranks, and this rank's position.
struct WorldOptions {
  std::string backend = "auto";  // auto, shm, gloo, mpi, nccl, hierarchical, loopback
  uint32_t rank = 0;
  uint32_t world_size = 1;
  // Ranks are numbered node by node. A single entry if all nodes have the same number of ranks.
  std::vector<uint32_t> ranks_on_node;
  KeyStore* store = nullptr;  // store of the job's generation; outlives the communicator
  std::string interface_address;
  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration timeout = absl::Seconds(30);
  // auto, on, off: whether an AllReduce reduces within each node first and then between nodes. auto
  // leaves the choice to NCCL; between CPUs it means on where nodes have several ranks.
  std::string hierarchical = "auto";
  // As in GroupOptions.
  const NcclParts* nccl = nullptr;
  std::function<absl::Status()> cancelled;
};

// Creates the WORLD communicator of a generation. auto selects nccl where ranks compute on GPUs;
// else shm on one node, gloo between nodes of one rank each, hierarchical otherwise. The lowest
// rank of each group draws its id and publishes it under unique-id/GROUP/INDEX (WORLD/0,
// LOCAL/node, CROSS/local rank). Blocks until all ranks have called. INVALID_ARGUMENT: an unknown
// backend, one that cannot span the nodes, or hierarchical "on" with nccl where nodes have
// different numbers of ranks; DEADLINE_EXCEEDED and UNAVAILABLE name ranks; errors of
// options.store.
absl::StatusOr<std::unique_ptr<Communicator>> CreateWorldCommunicator(const WorldOptions& options);

// Creates an nccl communicator of all ranks between their GPUs' memories with options.nccl,
// regardless of options.backend. Its id is under unique-id/DEVICES/0. Blocks until all ranks have
// called. Errors as of CreateNccl.
absl::StatusOr<std::unique_ptr<Communicator>> CreateDeviceCommunicator(const WorldOptions& options);

// Creates a group of the ranks on this rank's node, in world order, in addition to the WORLD group:
// shm, nccl between GPUs, or the backend given by name. Its id is under unique-id/NODE/node; the
// LOCAL groups belong to the hierarchical backend. Blocks until all ranks of the node have called.
// Errors as of CreateWorldCommunicator.
absl::StatusOr<std::unique_ptr<Communicator>> CreateNodeCommunicator(const WorldOptions& options);

// Creates a group of any of the world's ranks: group `index` among the groups named `name`
// (PIPELINE, DATA_PARALLEL; none of the names above), whose ranks are `members` in this order. The
// backend is the one given by name, else nccl between GPUs, shm on one node, gloo. Its id is under
// unique-id/NAME/INDEX. Blocks until all members have called, each with the same group. Errors as
// of CreateWorldCommunicator; INVALID_ARGUMENT also if this rank is not a member.
absl::StatusOr<std::unique_ptr<Communicator>> CreateGroupCommunicator(
    const WorldOptions& options, absl::string_view name, uint32_t index,
    std::vector<uint32_t> members);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_FACTORY_H_
