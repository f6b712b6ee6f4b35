// Which stage of which pipeline a rank is, and the groups that follow from it.
//
// Ranks are numbered pipeline by pipeline: rank r is stage r % stages of pipeline r / stages. The
// stages of one pipeline therefore share a node as far as they fit there: what travels between them
// is more than what travels between replicas, for convolutional networks.
#ifndef MUSTER_TRAINER_STRATEGY_PIPELINE_GROUPS_H_
#define MUSTER_TRAINER_STRATEGY_PIPELINE_GROUPS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "collectives/factory.h"

namespace muster::pipeline {

struct Place {
  uint32_t stages = 1;
  uint32_t stage = 0;
  uint32_t replicas = 1;  // of each stage: as many as there are pipelines
  uint32_t replica = 0;

  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == stages; }
};

// INVALID_ARGUMENT where `stages` does not divide the world.
absl::StatusOr<Place> PlaceOf(uint32_t rank, uint32_t world_size, uint32_t stages);

// Of one rank; they outlive what is made with them.
struct Groups {
  std::unique_ptr<collectives::Communicator> pipe;      // the stages of this pipeline, in order
  std::unique_ptr<collectives::Communicator> replicas;  // of this stage, by pipeline
  // Two ranks each, the earlier stage first, and one direction: what is sent never waits for what
  // is awaited. Null at the pipeline's ends.
  std::unique_ptr<collectives::Communicator> activations_in, gradients_out;  // the stage before
  std::unique_ptr<collectives::Communicator> activations_out, gradients_in;  // the stage behind
};

// Blocks until all ranks of the world have called, each with its place. By the ranks' processes,
// whatever options.nccl says. Errors as of collectives::CreateGroupCommunicator.
absl::StatusOr<Groups> Connect(collectives::WorldOptions options, const Place& place);

}  // namespace muster::pipeline

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_GROUPS_H_
