// The groups of ranks that share a communicator, as one rank of a generation sees them.
#ifndef MUSTER_TRAINER_STRATEGY_PROCESS_GROUPS_H_
#define MUSTER_TRAINER_STRATEGY_PROCESS_GROUPS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "collectives/factory.h"

namespace muster::train {

// Which groups a job needs beside WORLD; the same on all ranks.
struct RequiredGroups {
  bool local = false;
  // Gradients may be reduced between the memories of the ranks' GPUs.
  bool devices = true;
  // Of one pipeline; 0: there is no pipeline.
  uint32_t pipeline_stages = 0;
};

// Owns the communicators. What is not required is null. CROSS groups (the same local rank on each
// node) belong to the hierarchical communicator that uses them (collectives/hierarchical).
struct ProcessGroups {
  // Blocks until all ranks of the world have called, all with the same groups. options.backend and
  // options.hierarchical are the job's; empty: auto. Errors: those of
  // collectives::CreateWorldCommunicator and CreateNccl; INVALID_ARGUMENT where pipelines do not
  // divide the world.
  static absl::StatusOr<ProcessGroups> Create(const collectives::WorldOptions& options,
                                              const RequiredGroups& required);

  // All that are not null, to be aborted together.
  std::vector<collectives::Communicator*> all() const;
  // The first error of WORLD and of the devices' group, without asking a peer.
  absl::Status status() const;

  // WORLD: all ranks, between their processes.
  std::unique_ptr<collectives::Communicator> world;
  // WORLD again, between the memories of the ranks' GPUs: where options.nccl is given and there are
  // several ranks.
  std::unique_ptr<collectives::Communicator> devices;
  // LOCAL: the ranks of this rank's node.
  std::unique_ptr<collectives::Communicator> local_group;
  // PIPELINE: the stages of this rank's pipeline, in their order.
  std::unique_ptr<collectives::Communicator> pipeline_group;
  // DATA_PARALLEL: the replicas of this rank's stage, in the order of their pipelines.
  std::unique_ptr<collectives::Communicator> data_parallel_group;
  // Point-to-point groups with the previous and the next stage: two ranks each, the earlier stage
  // first. Each carries one direction, so that a send never waits for a receive. Null at the
  // pipeline's ends.
  std::unique_ptr<collectives::Communicator> activations_in, gradients_out;
  std::unique_ptr<collectives::Communicator> activations_out, gradients_in;
};

// A rank's place among pipelines. Ranks are numbered pipeline by pipeline: rank r is stage r %
// stages of pipeline r / stages. The stages of one pipeline therefore share a node as far as they
// fit there: what travels between them is more than what travels between replicas, for
// convolutional networks.
struct PipelinePlace {
  uint32_t stages = 1;
  uint32_t stage = 0;
  uint32_t replicas = 1;  // of each stage: as many as there are pipelines
  uint32_t replica = 0;

  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == stages; }
};

// INVALID_ARGUMENT where `stages` does not divide the world.
absl::StatusOr<PipelinePlace> PipelinePlaceOf(uint32_t rank, uint32_t world_size, uint32_t stages);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_PROCESS_GROUPS_H_
