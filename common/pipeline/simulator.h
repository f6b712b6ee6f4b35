// How long a step of a pipeline takes, and how long its stages wait, from what its parts take.
//
// Each action of schedule.h starts when its stage has ended the one before and its input has
// arrived; there is no formula in it, so it holds for stages and cuts of any costs. The model: a
// stage computes one action at a time; its outputs travel while it goes on computing; each cut
// carries one tensor at a time in each direction. The exchange of gradients between replicas and
// the update, which follow, are not of it.
#ifndef MUSTER_COMMON_PIPELINE_SIMULATOR_H_
#define MUSTER_COMMON_PIPELINE_SIMULATOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/pipeline/schedule.h"

namespace muster::pipeline {

// Of one micro-batch, in seconds.
struct PipelineCosts {
  std::vector<double> forward_seconds;   // by stage; at least one
  std::vector<double> backward_seconds;  // by stage
  std::vector<double>
      transfer_seconds;  // by cut, one fewer than stages, the same in both directions
};

struct SimulatedAction {
  uint32_t stage;
  Action action;
  double start_seconds;  // since the step began
  double end_seconds;
};

struct SimulatedStage {
  double busy_seconds = 0;
  double idle_seconds = 0;  // of the whole step
  uint32_t peak_slots = 0;  // micro-batches whose activations are kept at once
};

struct SimulatedStep {
  double seconds = 0;  // until the last action has ended
  std::vector<SimulatedStage> stages;
  double bubble_ratio = 0;  // of the stages' time, the share in which they wait; 0 to 1
  std::vector<SimulatedAction> actions;  // by stage, then in order
};

// INVALID_ARGUMENT: no stage or micro-batch, lists that do not fit together, a time that is
// negative or not finite, or more than kMaxSimulatedActions.
inline constexpr uint64_t kMaxSimulatedActions = 10'000'000;
absl::StatusOr<SimulatedStep> SimulateStep(const PipelineCosts& costs, Schedule schedule,
                                           uint32_t micro_batches);

// The same for any order of actions, by stage. Besides: INVALID_ARGUMENT when a stage has not each
// micro-batch once forward and once backward, FAILED_PRECONDITION when stages wait for each other
// for ever, naming the first one that does.
absl::StatusOr<SimulatedStep> SimulateActions(const PipelineCosts& costs,
                                              const std::vector<std::vector<Action>>& actions,
                                              uint32_t micro_batches);

}  // namespace muster::pipeline

#endif  // MUSTER_COMMON_PIPELINE_SIMULATOR_H_
