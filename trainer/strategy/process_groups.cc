#include "trainer/strategy/process_groups.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "collectives/nccl/nccl.h"
#include "common/status.h"

namespace muster::train {
namespace {

using collectives::Communicator;
using collectives::CreateGroupCommunicator;

// Maximum number of blocks of a kernel that transfers between two stages. A posted receive occupies
// them until its data arrives, while the stage computes.
constexpr int kLinkMaxCtas = 4;

absl::Status AddPipelineGroups(collectives::WorldOptions options, const PipelinePlace& place,
                               ProcessGroups& groups) {
  // Only WORLD uses hierarchical collectives.
  if (options.backend == "hierarchical") options.backend = "auto";
  std::vector<uint32_t> pipeline, replicas;
  for (uint32_t stage = 0; stage < place.stages; ++stage) {
    pipeline.push_back(place.replica * place.stages + stage);
  }
  for (uint32_t replica = 0; replica < place.replicas; ++replica) {
    replicas.push_back(replica * place.stages + place.stage);
  }
  const bool on_devices = options.nccl != nullptr;
  collectives::WorldOptions devices = options;
  devices.backend = "nccl";
  options.nccl = nullptr;
  ASSIGN_OR_RETURN(groups.pipeline_group,
                   CreateGroupCommunicator(options, "PIPELINE", place.replica, pipeline));
  ASSIGN_OR_RETURN(groups.data_parallel_group,
                   CreateGroupCommunicator(options, "DATA_PARALLEL", place.stage, replicas));
  if (on_devices && place.stages > 1 && place.replicas > 1) {
    ASSIGN_OR_RETURN(groups.pipeline_devices,
                     CreateGroupCommunicator(devices, "PIPELINE_DEVICES", place.replica, pipeline));
  }
  if (on_devices && place.replicas > 1) {
    ASSIGN_OR_RETURN(groups.data_parallel_devices,
                     CreateGroupCommunicator(devices, "REPLICA_DEVICES", place.stage, replicas));
  }
  collectives::NcclParts link_parts;
  if (on_devices) {
    link_parts = *devices.nccl;
    link_parts.max_ctas = kLinkMaxCtas;
    devices.nccl = &link_parts;
  }
  const collectives::WorldOptions& links = on_devices ? devices : options;
  // Connects links from the first stage to the last, so that a stage waits only for earlier stages.
  if (!place.is_first()) {
    const uint32_t previous = options.rank - 1;
    const std::vector<uint32_t> both = {previous, options.rank};
    ASSIGN_OR_RETURN(groups.activations_in,
                     CreateGroupCommunicator(links, "ACTIVATIONS", previous, both));
    ASSIGN_OR_RETURN(groups.gradients_out,
                     CreateGroupCommunicator(links, "GRADIENTS", previous, both));
  }
  if (!place.is_last()) {
    const std::vector<uint32_t> both = {options.rank, options.rank + 1};
    ASSIGN_OR_RETURN(groups.activations_out,
                     CreateGroupCommunicator(links, "ACTIVATIONS", options.rank, both));
    ASSIGN_OR_RETURN(groups.gradients_in,
                     CreateGroupCommunicator(links, "GRADIENTS", options.rank, both));
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
  std::optional<PipelinePlace> place;
  if (required.pipeline_stages > 0) {
    ASSIGN_OR_RETURN(place,
                     PipelinePlaceOf(options.rank, options.world_size, required.pipeline_stages));
  }
  collectives::NcclParts nccl;
  if (required.devices && options.nccl != nullptr && options.world_size > 1) {
    nccl = *options.nccl;
    // An update depends on several groups, and must not run after any of them has failed.
    if (place.has_value()) {
      ASSIGN_OR_RETURN(nccl.flag_stream, nccl.make_stream());
    }
    processes.nccl = &nccl;
    ASSIGN_OR_RETURN(groups.devices, collectives::CreateDeviceCommunicator(processes));
  }
  if (place.has_value()) RETURN_IF_ERROR(AddPipelineGroups(processes, *place, groups));
  return groups;
}

std::vector<Communicator*> ProcessGroups::all() const {
  std::vector<Communicator*> all;
  for (const auto* const group :
       {&world, &devices, &local_group, &pipeline_group, &data_parallel_group, &pipeline_devices,
        &data_parallel_devices, &activations_in, &gradients_out, &activations_out, &gradients_in}) {
    if (*group != nullptr) all.push_back(group->get());
  }
  return all;
}

std::vector<Communicator*> ProcessGroups::device_groups() const {
  if (devices == nullptr) return {};
  std::vector<Communicator*> all;
  for (const auto* const group :
       {&devices, &pipeline_devices, &data_parallel_devices, &activations_in, &gradients_out,
        &activations_out, &gradients_in}) {
    if (*group != nullptr) all.push_back(group->get());
  }
  return all;
}

absl::Status ProcessGroups::status() const {
  RETURN_IF_ERROR(world->status());
  for (const Communicator* const group : device_groups()) RETURN_IF_ERROR(group->status());
  return absl::OkStatus();
}

void ProcessGroups::AbortDevices(const absl::Status& reason) const {
  for (Communicator* const group : device_groups()) group->Abort(reason);
}

}  // namespace muster::train
