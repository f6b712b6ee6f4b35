#include "trainer/strategy/pipeline/groups.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::pipeline {

using collectives::CreateGroupCommunicator;

absl::StatusOr<Place> PlaceOf(uint32_t rank, uint32_t world_size, uint32_t stages) {
  if (stages == 0 || world_size % stages != 0 || rank >= world_size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " of ", world_size,
                                                   " ranks in pipelines of ", stages, " stages"));
  }
  return Place{.stages = stages,
               .stage = rank % stages,
               .replicas = world_size / stages,
               .replica = rank / stages};
}

absl::StatusOr<Groups> Connect(collectives::WorldOptions options, const Place& place) {
  options.nccl = nullptr;
  // Two levels are the world's alone, and NCCL connects GPUs.
  if (options.backend == "hierarchical" || options.backend == "nccl") options.backend = "auto";
  const uint32_t first = place.replica * place.stages;
  std::vector<uint32_t> pipe, replicas;
  for (uint32_t stage = 0; stage < place.stages; ++stage) pipe.push_back(first + stage);
  for (uint32_t replica = 0; replica < place.replicas; ++replica) {
    replicas.push_back(replica * place.stages + place.stage);
  }
  Groups groups;
  ASSIGN_OR_RETURN(groups.pipe, CreateGroupCommunicator(options, "PIPE", place.replica, pipe));
  ASSIGN_OR_RETURN(groups.replicas,
                   CreateGroupCommunicator(options, "STAGE", place.stage, replicas));
  // From the front to the back, so that each stage waits only for those before it.
  if (!place.is_first()) {
    const uint32_t index = options.rank - 1;
    const std::vector<uint32_t> both = {index, options.rank};
    ASSIGN_OR_RETURN(groups.activations_in,
                     CreateGroupCommunicator(options, "ACTIVATIONS", index, both));
    ASSIGN_OR_RETURN(groups.gradients_out,
                     CreateGroupCommunicator(options, "GRADIENTS", index, both));
  }
  if (!place.is_last()) {
    const std::vector<uint32_t> both = {options.rank, options.rank + 1};
    ASSIGN_OR_RETURN(groups.activations_out,
                     CreateGroupCommunicator(options, "ACTIVATIONS", options.rank, both));
    ASSIGN_OR_RETURN(groups.gradients_in,
                     CreateGroupCommunicator(options, "GRADIENTS", options.rank, both));
  }
  return groups;
}

}  // namespace muster::pipeline
