// Measures how long the phases of a training step take.
#ifndef MUSTER_TRAINER_GRAPH_PLAN_TIMER_H_
#define MUSTER_TRAINER_GRAPH_PLAN_TIMER_H_

#include <cstddef>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "trainer/graph/compiled_plan.h"

namespace muster::nn {

// Observes the plan's operations from construction on; the plan must outlive it. Between BeginStep
// and EndStep any passes may run, also several times: times accumulate within a step. It waits for
// the plan's device between phases. For use on the plan's thread.
class PlanTimer {
 public:
  explicit PlanTimer(CompiledPlan* plan);
  ~PlanTimer();
  PlanTimer(const PlanTimer&) = delete;
  PlanTimer& operator=(const PlanTimer&) = delete;

  void BeginStep();
  // Times a phase that is not an operation of the plan.
  template <typename Phase>
  void Objective(const Phase& phase) {
    Measure(phase, current_.objective);
  }
  template <typename Phase>
  void Optimizer(const Phase& phase) {
    Measure(phase, current_.optimizer);
  }
  void EndStep();

  // Durations within one step, by operation in the plan's order; zero for skipped operations.
  struct Times {
    std::vector<absl::Duration> forward;
    std::vector<absl::Duration> backward;
    absl::Duration objective;
    absl::Duration optimizer;
    absl::Duration step;
  };
  size_t steps() const { return steps_.size(); }
  // Median of each phase over the steps.
  Times Medians() const;

 private:
  template <typename Phase>
  void Measure(const Phase& phase, absl::Duration& total) {
    const SteadyTime start = AllDone();
    phase();
    total += AllDone() - start;
  }
  // Waits for the device; its errors are reported to the next caller of Synchronize.
  SteadyTime AllDone() const {
    plan_->device().Synchronize().IgnoreError();
    return Now().steady;
  }
  Times NoTimes() const;

  CompiledPlan* const plan_;
  std::map<const Operation*, size_t> index_;
  std::vector<Times> steps_;
  Times current_;
  SteadyTime step_start_;
  SteadyTime pass_start_;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PLAN_TIMER_H_
