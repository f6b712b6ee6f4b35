// Counts the launches of a training step by phase.
#ifndef MUSTER_TRAINER_GRAPH_LAUNCH_COUNTER_H_
#define MUSTER_TRAINER_GRAPH_LAUNCH_COUNTER_H_

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "kernels/launch_log.h"
#include "trainer/graph/compiled_plan.h"

namespace muster::nn {

// Records the launches of a plan's operations and of the step's other phases from construction to
// destruction. The plan, whose device records in the LaunchLog, must outlive it. For use on the
// plan's thread.
class LaunchCounter {
 public:
  using Launches = std::vector<kernels::Launch>;

  explicit LaunchCounter(CompiledPlan* plan);
  ~LaunchCounter();
  LaunchCounter(const LaunchCounter&) = delete;
  LaunchCounter& operator=(const LaunchCounter&) = delete;

  // Runs a phase that is not an operation of the plan.
  template <typename Phase>
  void Objective(const Phase& phase) {
    Count(phase, objective_);
  }
  template <typename Phase>
  void Optimizer(const Phase& phase) {
    Count(phase, optimizer_);
  }

  // By operation, in the plan's order.
  const std::vector<Launches>& forward() const { return forward_; }
  const std::vector<Launches>& backward() const { return backward_; }
  const Launches& objective() const { return objective_; }
  const Launches& optimizer() const { return optimizer_; }
  // Launches of the plan that belong to no operation.
  const Launches& other() const { return other_.launches(); }
  size_t total() const;

 private:
  static void Append(const Launches& from, Launches& to);
  template <typename Phase>
  static void Count(const Phase& phase, Launches& to) {
    const kernels::LaunchLog log;
    phase();
    Append(log.launches(), to);
  }

  CompiledPlan* const plan_;
  std::map<const Operation*, size_t> index_;
  std::vector<Launches> forward_;
  std::vector<Launches> backward_;
  Launches objective_;
  Launches optimizer_;
  kernels::LaunchLog other_;
  std::optional<kernels::LaunchLog> pass_;  // during a pass of an operation
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_LAUNCH_COUNTER_H_
