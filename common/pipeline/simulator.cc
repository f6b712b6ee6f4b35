#include "common/pipeline/simulator.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace muster::pipeline {
namespace {

constexpr double kNotYet = std::numeric_limits<double>::infinity();

absl::Status CheckTimes(const std::vector<double>& seconds, size_t expected, const char* what) {
  if (seconds.size() != expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": got ", seconds.size(), " times, expected ", expected));
  }
  for (const double time : seconds) {
    if (!std::isfinite(time) || time < 0) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": invalid time ", time));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCosts(const PipelineCosts& costs, uint32_t micro_batches) {
  const size_t stages = costs.forward_seconds.size();
  if (stages == 0) return absl::InvalidArgumentError("a pipeline needs at least one stage");
  if (micro_batches == 0)
    return absl::InvalidArgumentError("a step needs at least one micro-batch");
  if (stages * uint64_t{2} * micro_batches > kMaxSimulatedActions) {
    return absl::InvalidArgumentError(absl::StrCat("cannot simulate ", stages, " stages with ",
                                                   micro_batches, " micro-batches; the limit is ",
                                                   kMaxSimulatedActions, " actions"));
  }
  absl::Status status = CheckTimes(costs.forward_seconds, stages, "forward");
  if (status.ok()) status = CheckTimes(costs.backward_seconds, stages, "backward");
  if (status.ok()) status = CheckTimes(costs.transfer_seconds, stages - 1, "transfers");
  return status;
}

// Whether the actions are exactly one forward and one backward of each micro-batch.
bool HasEachActionOnce(const std::vector<Action>& actions, uint32_t micro_batches) {
  if (actions.size() != size_t{2} * micro_batches) return false;
  std::vector<bool> forward(micro_batches), backward(micro_batches);
  for (const Action& action : actions) {
    if (action.micro_batch >= micro_batches) return false;
    auto& seen = action.kind == Action::Kind::kForward ? forward : backward;
    if (seen[action.micro_batch]) return false;
    seen[action.micro_batch] = true;
  }
  return true;
}

// A link between two stages in one direction, which carries one tensor at a time; records when each
// micro-batch's tensor arrives.
class Link {
 public:
  explicit Link(uint32_t micro_batches, double arrival = kNotYet)
      : arrivals_(micro_batches, arrival) {}
  // Must be called in the order in which the tensors are computed.
  void Send(uint32_t micro_batch, double computed, double seconds) {
    free_ = std::max(computed, free_) + seconds;
    arrivals_[micro_batch] = free_;
  }
  double arrival(uint32_t micro_batch) const { return arrivals_[micro_batch]; }

 private:
  std::vector<double> arrivals_;
  double free_ = 0;
};

class Simulation {
 public:
  Simulation(const PipelineCosts& costs, const std::vector<std::vector<Action>>& actions,
             uint32_t micro_batches)
      : costs_(costs),
        actions_(actions),
        next_(actions.size(), 0),
        free_(actions.size(), 0),
        outputs_(actions.size(), Link(micro_batches)),
        gradients_(actions.size(), Link(micro_batches)),
        done_(actions.size()) {}

  absl::StatusOr<SimulatedStep> Run() {
    // A stage that has progressed may unblock its neighbors.
    std::vector<size_t> to_try;
    for (size_t stage = actions_.size(); stage-- > 0;) to_try.push_back(stage);
    while (!to_try.empty()) {
      const size_t stage = to_try.back();
      to_try.pop_back();
      bool progressed = false;
      while (TryNext(stage)) progressed = true;
      if (!progressed) continue;
      if (stage > 0) to_try.push_back(stage - 1);
      if (stage + 1 < actions_.size()) to_try.push_back(stage + 1);
    }
    for (size_t stage = 0; stage < actions_.size(); ++stage) {
      if (next_[stage] == actions_[stage].size()) continue;
      const Action& action = actions_[stage][next_[stage]];
      return absl::FailedPreconditionError(
          absl::StrCat("deadlock: stage ", stage, " waits for the input of the ",
                       action.kind == Action::Kind::kForward ? "forward" : "backward",
                       " of micro-batch ", action.micro_batch));
    }
    return Result();
  }

 private:
  bool TryNext(size_t stage) {
    if (next_[stage] == actions_[stage].size()) return false;
    const Action action = actions_[stage][next_[stage]];
    const double input = InputTime(stage, action);
    if (input == kNotYet) return false;
    const bool forward = action.kind == Action::Kind::kForward;
    const double start = std::max(free_[stage], input);
    const double end = start + (forward ? costs_.forward_seconds[stage]  //
                                        : costs_.backward_seconds[stage]);
    free_[stage] = end;
    // The output of the last stage is not transferred: its own backward uses it.
    const bool last = stage + 1 == actions_.size();
    if (forward) {
      outputs_[stage].Send(action.micro_batch, end, last ? 0 : costs_.transfer_seconds[stage]);
    } else {
      gradients_[stage].Send(action.micro_batch, end,
                             stage == 0 ? 0 : costs_.transfer_seconds[stage - 1]);
    }
    done_[stage].push_back({static_cast<uint32_t>(stage), action, start, end});
    ++next_[stage];
    return true;
  }

  double InputTime(size_t stage, const Action& action) const {
    if (action.kind == Action::Kind::kForward) {
      return stage == 0 ? 0 : outputs_[stage - 1].arrival(action.micro_batch);
    }
    return stage + 1 == actions_.size() ? outputs_[stage].arrival(action.micro_batch)
                                        : gradients_[stage + 1].arrival(action.micro_batch);
  }

  SimulatedStep Result() const {
    SimulatedStep step;
    for (const double end : free_) step.seconds = std::max(step.seconds, end);
    double idle = 0;
    for (const std::vector<SimulatedAction>& actions : done_) {
      SimulatedStage stage;
      uint32_t slots = 0;
      for (const SimulatedAction& done : actions) {
        stage.busy_seconds += done.end_seconds - done.start_seconds;
        if (done.action.kind == Action::Kind::kForward) {
          stage.peak_slots = std::max(stage.peak_slots, ++slots);
        } else {
          --slots;
        }
      }
      stage.idle_seconds = std::max(0.0, step.seconds - stage.busy_seconds);
      idle += stage.idle_seconds;
      step.stages.push_back(stage);
      step.actions.insert(step.actions.end(), actions.begin(), actions.end());
    }
    if (step.seconds > 0) {
      step.bubble_ratio = idle / (step.seconds * static_cast<double>(done_.size()));
    }
    return step;
  }

  const PipelineCosts& costs_;
  const std::vector<std::vector<Action>>& actions_;
  std::vector<size_t> next_;                        // by stage, the index of its next action
  std::vector<double> free_;                        // by stage, the end of its previous action
  std::vector<Link> outputs_;                       // by the stage that computes the outputs
  std::vector<Link> gradients_;                     // by the stage that computes the gradients
  std::vector<std::vector<SimulatedAction>> done_;  // by stage
};

}  // namespace

absl::StatusOr<SimulatedStep> SimulateActions(const PipelineCosts& costs,
                                              const std::vector<std::vector<Action>>& actions,
                                              uint32_t micro_batches) {
  const absl::Status status = CheckCosts(costs, micro_batches);
  if (!status.ok()) return status;
  if (actions.size() != costs.forward_seconds.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "got actions of ", actions.size(), " stages, expected ", costs.forward_seconds.size()));
  }
  for (size_t stage = 0; stage < actions.size(); ++stage) {
    if (!HasEachActionOnce(actions[stage], micro_batches)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stage ", stage, " must compute each micro-batch once forward and once backward"));
    }
  }
  return Simulation(costs, actions, micro_batches).Run();
}

absl::StatusOr<SimulatedStep> SimulateStep(const PipelineCosts& costs, Schedule schedule,
                                           uint32_t micro_batches) {
  const absl::Status status = CheckCosts(costs, micro_batches);
  if (!status.ok()) return status;
  const uint32_t stages = static_cast<uint32_t>(costs.forward_seconds.size());
  std::vector<std::vector<Action>> actions;
  for (uint32_t stage = 0; stage < stages; ++stage) {
    actions.push_back(ActionsOf(schedule, stages, stage, micro_batches));
  }
  return SimulateActions(costs, actions, micro_batches);
}

}  // namespace muster::pipeline
