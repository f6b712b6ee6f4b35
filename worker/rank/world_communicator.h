// From what the coordinator says of a generation to the communicators of its ranks.
#ifndef MUSTER_WORKER_RANK_WORLD_COMMUNICATOR_H_
#define MUSTER_WORKER_RANK_WORLD_COMMUNICATOR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/collectives/communicator.h"

namespace muster::rank {

struct RankCommunicators {
  // All ranks.
  std::unique_ptr<collectives::Communicator> world;
  // Those of this rank's node; null unless asked for.
  std::unique_ptr<collectives::Communicator> node;
};

// Blocks until all ranks of the world have called, all with the same `backend` and `with_node`.
// `store` is of the world's generation and outlives the communicators. Errors: those of
// collectives::CreateWorldCommunicator.
absl::StatusOr<RankCommunicators> ConnectRanks(const v1::World& world, uint32_t rank,
                                               absl::string_view backend, bool with_node,
                                               collectives::KeyStore* store);

}  // namespace muster::rank

#endif  // MUSTER_WORKER_RANK_WORLD_COMMUNICATOR_H_
