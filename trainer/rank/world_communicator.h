// From what the coordinator says of a generation to the communicators of its ranks.
#ifndef MUSTER_TRAINER_RANK_WORLD_COMMUNICATOR_H_
#define MUSTER_TRAINER_RANK_WORLD_COMMUNICATOR_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "proto/muster/v1/worker.pb.h"
#include "trainer/strategy/pipeline/groups.h"

namespace muster::rank {

struct ConnectOptions {
  uint32_t rank = 0;
  std::string backend;                     // of the spec; empty: auto
  std::string hierarchical;                // of the spec's strategy; empty: auto
  bool with_node = false;                  // the ranks of this rank's node are a group besides
  uint32_t pipeline_stages = 0;            // of a pipeline: the groups of its stages besides
  collectives::KeyStore* store = nullptr;  // of the world's generation; outlives the communicators
  // Where the rank computes on a GPU and the ranks' gradients go from GPU to GPU; else null.
  const collectives::NcclParts* nccl = nullptr;
  // As in collectives::GroupOptions.
  std::function<absl::Status()> cancelled;
};

struct RankCommunicators {
  // All ranks, by their processes.
  std::unique_ptr<collectives::Communicator> world;
  // Those of this rank's node; null unless asked for.
  std::unique_ptr<collectives::Communicator> node;
  // All ranks, by their GPUs; null without ConnectOptions::nccl, and in a world of one.
  std::unique_ptr<collectives::Communicator> devices;
  // Of a rank that is a stage; null unless asked for.
  std::unique_ptr<pipeline::Groups> pipeline;

  std::vector<collectives::Communicator*> all() const;
};

// Blocks until all ranks of the world have called, all with the same options. Errors: those of
// collectives::CreateWorldCommunicator and collectives::CreateNccl.
absl::StatusOr<RankCommunicators> ConnectRanks(const v1::World& world,
                                               const ConnectOptions& options);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_WORLD_COMMUNICATOR_H_
