// Process groups of one rank in one generation, each with its communicator.
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

// Groups that a job needs in addition to WORLD; the same on all ranks.
struct RequiredGroups {
  bool local = false;
  // Ranks may communicate between the memories of their GPUs.
  bool devices = true;
  // Stages per pipeline; 0: no pipeline.
  uint32_t pipeline_stages = 0;
};

// Owns the communicators; those that are not required are null. CROSS groups (the same local rank
// on each node) belong to the hierarchical communicator that uses them (collectives/hierarchical).
struct ProcessGroups {
  // Blocks until all ranks of the world have called it with the same groups. options.backend and
  // options.hierarchical are the job's settings; empty: auto. Returns the errors of
  // collectives::CreateWorldCommunicator and CreateNccl; INVALID_ARGUMENT if the world size is not
  // a multiple of the number of stages.
  static absl::StatusOr<ProcessGroups> Create(const collectives::WorldOptions& options,
                                              const RequiredGroups& required);

  // All communicators that are not null, e.g. to abort them together.
  std::vector<collectives::Communicator*> all() const;
  // First error of WORLD and the groups that connect GPUs; does not communicate.
  absl::Status status() const;
  // Aborts the groups that connect GPUs: kernels of one may wait for a peer that has left another,
  // and releasing device memory waits for them.
  void AbortDevices(const absl::Status& reason) const;

  // WORLD: all ranks; connects their processes.
  std::unique_ptr<collectives::Communicator> world;
  // WORLD: all ranks; connects the memories of their GPUs. Only if options.nccl is set and the
  // world has several ranks. All groups that connect GPUs have the same failed_flag().
  std::unique_ptr<collectives::Communicator> devices;
  // LOCAL: the ranks of this rank's node.
  std::unique_ptr<collectives::Communicator> local_group;
  // PIPELINE: the stages of this rank's pipeline, in order.
  std::unique_ptr<collectives::Communicator> pipeline_group;
  // DATA_PARALLEL: the replicas of this rank's stage, ordered by pipeline.
  std::unique_ptr<collectives::Communicator> data_parallel_group;
  // The same groups between the memories of the GPUs. Only if `devices` is set and pipelines have
  // several stages, or stages several replicas; pipeline_devices is null with a single pipeline,
  // whose stages `devices` connects.
  std::unique_ptr<collectives::Communicator> pipeline_devices;
  std::unique_ptr<collectives::Communicator> data_parallel_devices;
  // Point-to-point groups with the previous and the next stage: two ranks each, the earlier stage
  // first. Each carries one direction, so that a send never waits for a receive. Null at the ends
  // of the pipeline. They connect GPUs if `devices` is set, otherwise the processes.
  std::unique_ptr<collectives::Communicator> activations_in, gradients_out;
  std::unique_ptr<collectives::Communicator> activations_out, gradients_in;

 private:
  std::vector<collectives::Communicator*> device_groups() const;
};

// A rank's position in the pipelines. Ranks are numbered pipeline by pipeline: rank r is stage r %
// stages of pipeline r / stages. The stages of one pipeline therefore share a node as far as they
// fit: convolutional networks transfer more between stages than between replicas.
struct PipelinePlace {
  uint32_t stages = 1;
  uint32_t stage = 0;
  uint32_t replicas = 1;  // replicas of each stage, i.e. number of pipelines
  uint32_t replica = 0;

  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == stages; }
};

// INVALID_ARGUMENT if `world_size` is not a multiple of `stages`.
absl::StatusOr<PipelinePlace> PipelinePlaceOf(uint32_t rank, uint32_t world_size, uint32_t stages);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_PROCESS_GROUPS_H_
