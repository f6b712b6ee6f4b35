// From what the coordinator says of a generation to the communicator of all its ranks.
#ifndef MUSTER_WORKER_RANK_WORLD_COMMUNICATOR_H_
#define MUSTER_WORKER_RANK_WORLD_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/collectives/communicator.h"

namespace muster::rank {

// Blocks until all ranks of the world have called. `store` is of the world's generation and
// outlives the communicator. Errors: those of collectives::CreateWorldCommunicator.
absl::StatusOr<std::unique_ptr<collectives::Communicator>> ConnectWorld(
    const v1::World& world, uint32_t rank, absl::string_view backend, collectives::KeyStore* store);

}  // namespace muster::rank

#endif  // MUSTER_WORKER_RANK_WORLD_COMMUNICATOR_H_
