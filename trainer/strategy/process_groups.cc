#include "trainer/strategy/process_groups.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::train {
namespace {

using collectives::Communicator;
using collectives::CreateGroupCommunicator;

absl::Status AddPipelineGroups(collectives::WorldOptions options, uint32_t stages,
                               ProcessGroups& groups) {
  ASSIGN_OR_RETURN(const PipelinePlace place,
                   PipelinePlaceOf(options.rank, options.world_size, stages));
  // Only WORLD uses hierarchical collectives.
  if (options.backend == "hierarchical") options.backend = "auto";
  std::vector<uint32_t> pipeline, replicas;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    pipeline.push_back(place.replica * stages + stage);
  }
  for (uint32_t replica = 0; replica < place.replicas; ++replica) {
    replicas.push_back(replica * stages + place.stage);
  }
  ASSIGN_OR_RETURN(groups.pipeline_group,
                   CreateGroupCommunicator(options, "PIPELINE", place.replica, pipeline));
  ASSIGN_OR_RETURN(groups.data_parallel_group,
                   CreateGroupCommunicator(options, "DATA_PARALLEL", place.stage, replicas));
  // Connects links from the first stage to the last, so that a stage waits only for earlier stages.
  if (!place.is_first()) {
    const uint32_t previous = options.rank - 1;
    const std::vector<uint32_t> both = {previous, options.rank};
    ASSIGN_OR_RETURN(groups.activations_in,
                     CreateGroupCommunicator(options, "ACTIVATIONS", previous, both));
    ASSIGN_OR_RETURN(groups.gradients_out,
                     CreateGroupCommunicator(options, "GRADIENTS", previous, both));
  }
  if (!place.is_last()) {
    const std::vector<uint32_t> both = {options.rank, options.rank + 1};
    ASSIGN_OR_RETURN(groups.activations_out,
                     CreateGroupCommunicator(options, "ACTIVATIONS", options.rank, both));
    ASSIGN_OR_RETURN(groups.gradients_in,
                     CreateGroupCommunicator(options, "GRADIENTS", options.rank, both));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PipelinePlace> PipelinePlaceOf(uint32_t rank, uint32_t world_size, uint32_t stages) {
  if (stages == 0 || world_size % stages != 0 || rank >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat("cannot divide ", world_size, " ranks (rank ",
                                                   rank, ") into pipelines of ", stages,
                                                   " stages"));
  }
  return PipelinePlace{.stages = stages,
                       .stage = rank % stages,
                       .replicas = world_size / stages,
                       .replica = rank / stages};
}

absl::StatusOr<ProcessGroups> ProcessGroups::Create(const collectives::WorldOptions& options,
                                                    const RequiredGroups& required) {
  collectives::WorldOptions processes = options;
  processes.nccl = nullptr;
  if (processes.hierarchical.empty()) processes.hierarchical = "auto";
  // NCCL connects GPUs; the processes still exchange control values through another backend.
  if (options.backend.empty() || options.backend == "nccl") processes.backend = "auto";
  ProcessGroups groups;
  ASSIGN_OR_RETURN(groups.world, collectives::CreateWorldCommunicator(processes));
  if (required.local) {
    ASSIGN_OR_RETURN(groups.local_group, collectives::CreateNodeCommunicator(processes));
  }
  if (required.pipeline_stages > 0) {
    RETURN_IF_ERROR(AddPipelineGroups(processes, required.pipeline_stages, groups));
  }
  if (required.devices && options.nccl != nullptr && options.world_size > 1) {
    processes.nccl = options.nccl;
    ASSIGN_OR_RETURN(groups.devices, collectives::CreateDeviceCommunicator(processes));
  }
  return groups;
}

std::vector<Communicator*> ProcessGroups::all() const {
  std::vector<Communicator*> all;
  for (const auto* const group :
       {&world, &devices, &local_group, &pipeline_group, &data_parallel_group, &activations_in,
        &gradients_out, &activations_out, &gradients_in}) {
    if (*group != nullptr) all.push_back(group->get());
  }
  return all;
}

absl::Status ProcessGroups::status() const {
  RETURN_IF_ERROR(world->status());
  return devices != nullptr ? devices->status() : absl::OkStatus();
}

}  // namespace muster::train
