// How long the parts of a training step take.
#ifndef MUSTER_TRAINER_GRAPH_PLAN_TIMER_H_
#define MUSTER_TRAINER_GRAPH_PLAN_TIMER_H_

#include <cstddef>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "common/now.h"
#include "common/time.h"
#include "trainer/graph/compiled_plan.h"

namespace muster::nn {

// Watches the plan's operations from its making on; the plan outlives it. Between the calls of
// BeginStep and EndStep anything may be run, also the plan several times: times add up within a
// step. It waits for the plan's device between the parts. For the plan's thread.
class PlanTimer {
 public:
  explicit PlanTimer(CompiledPlan* plan);
  ~PlanTimer();
  PlanTimer(const PlanTimer&) = delete;
  PlanTimer& operator=(const PlanTimer&) = delete;

  void BeginStep();
  // Times a part that is no operation.
  template <typename Part>
  void Objective(const Part& part) {
    Measure(part, current_.objective);
  }
  template <typename Part>
  void Optimizer(const Part& part) {
    Measure(part, current_.optimizer);
  }
  void EndStep();

  // Of one step. By operation, in the plan's order; what a step left out took no time.
  struct Times {
    std::vector<absl::Duration> forward;
    std::vector<absl::Duration> backward;
    absl::Duration objective;
    absl::Duration optimizer;
    absl::Duration step;
  };
  size_t steps() const { return steps_.size(); }
  // Each part's median over the steps.
  Times Medians() const;

 private:
  template <typename Part>
  void Measure(const Part& part, absl::Duration& total) {
    const SteadyTime start = AllDone();
    part();
    total += AllDone() - start;
  }
  // Waits for the device; its errors are told to whoever synchronises next.
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
