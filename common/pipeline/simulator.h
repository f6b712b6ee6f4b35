// Simulates a pipeline step: computes its duration and each stage's idle time from the costs of the
// stages.
//
// The simulation is event-driven, so that it is exact for stages and transfers of any cost. A stage
// computes one action of schedule.h at a time, which starts when the previous action has ended and
// its input has arrived. Transfers overlap with computation; each cut carries one tensor at a time
// in each direction. The gradient all-reduce between replicas and the optimizer update are not
// included.
#ifndef MUSTER_COMMON_PIPELINE_SIMULATOR_H_
#define MUSTER_COMMON_PIPELINE_SIMULATOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "common/pipeline/schedule.h"

namespace muster::pipeline {

// Costs of one micro-batch, in seconds.
struct PipelineCosts {
  std::vector<double> forward_seconds;   // by stage; at least one
  std::vector<double> backward_seconds;  // by stage
  std::vector<double> transfer_seconds;  // by cut (stages - 1), equal in both directions
};

struct SimulatedAction {
  uint32_t stage;
  Action action;
  double start_seconds;  // time since the step began
  double end_seconds;
};

struct SimulatedStage {
  double busy_seconds = 0;
  double idle_seconds = 0;  // idle time during the whole step
  uint32_t peak_slots = 0;  // maximum number of in-flight micro-batches
};

struct SimulatedStep {
  double seconds = 0;  // duration until the last action has ended
  std::vector<SimulatedStage> stages;
  double bubble_ratio = 0;               // idle share of the stages' total time; 0 to 1
  std::vector<SimulatedAction> actions;  // by stage, then in order
};

// Simulates a step with one of the schedules. INVALID_ARGUMENT: no stage or micro-batch, lists
// whose lengths do not match, a time that is negative or not finite, or more than
// kMaxSimulatedActions.
inline constexpr uint64_t kMaxSimulatedActions = 10'000'000;
absl::StatusOr<SimulatedStep> SimulateStep(const PipelineCosts& costs, Schedule schedule,
                                           uint32_t micro_batches);

// Simulates a step with an arbitrary order of actions, given for each stage. Additional errors:
// INVALID_ARGUMENT if a stage does not compute each micro-batch once forward and once backward;
// FAILED_PRECONDITION if the stages deadlock, naming the first one that waits.
absl::StatusOr<SimulatedStep> SimulateActions(const PipelineCosts& costs,
                                              const std::vector<std::vector<Action>>& actions,
                                              uint32_t micro_batches);

}  // namespace muster::pipeline

#endif  // MUSTER_COMMON_PIPELINE_SIMULATOR_H_
