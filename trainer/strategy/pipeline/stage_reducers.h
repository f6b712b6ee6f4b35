// Reduces the gradients of a stage over its replicas and the losses over all ranks, and updates the
// stage's parameters.
#ifndef MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_REDUCERS_H_
#define MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_REDUCERS_H_

#include "absl/status/statusor.h"
#include "trainer/strategy/parameter_update.h"

namespace muster::train {

// Collective. Reduces as parts.path selects: by the processes, which exchange the sums that all
// stages need (losses, squared norm, whether gradients are finite) after backward, or between the
// devices, where all calls may be captured in graphs.
absl::StatusOr<GradientPath> CreateStagePath(const StepParts& parts);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_PIPELINE_STAGE_REDUCERS_H_
