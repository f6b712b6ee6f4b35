#include "trainer/graph/plan_timer.h"

#include <algorithm>

#include "absl/strings/string_view.h"

namespace muster::nn {

PlanTimer::PlanTimer(CompiledPlan* plan) : plan_(plan) {
  for (const auto& operation : plan->operations()) index_.emplace(operation.get(), index_.size());
  current_ = NoTimes();
  plan->Observe([this](const Operation& operation, const char* pass, bool done) {
    if (!done) {
      pass_start_ = AllDone();
      return;
    }
    const absl::Duration time = AllDone() - pass_start_;
    const bool forward = absl::string_view(pass) == "forward";
    (forward ? current_.forward : current_.backward)[index_.at(&operation)] += time;
  });
}

PlanTimer::~PlanTimer() { plan_->Observe(nullptr); }

PlanTimer::Times PlanTimer::NoTimes() const {
  Times times;
  times.forward.resize(index_.size());
  times.backward.resize(index_.size());
  return times;
}

void PlanTimer::BeginStep() {
  current_ = NoTimes();
  step_start_ = AllDone();
}

void PlanTimer::EndStep() {
  current_.step = AllDone() - step_start_;
  steps_.push_back(current_);
}

PlanTimer::Times PlanTimer::Medians() const {
  const auto median = [this](auto part_of) {
    std::vector<absl::Duration> values;
    for (const Times& step : steps_) values.push_back(part_of(step));
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  };
  Times medians = NoTimes();
  for (size_t i = 0; i < index_.size(); ++i) {
    medians.forward[i] = median([i](const Times& step) { return step.forward[i]; });
    medians.backward[i] = median([i](const Times& step) { return step.backward[i]; });
  }
  medians.objective = median([](const Times& step) { return step.objective; });
  medians.optimizer = median([](const Times& step) { return step.optimizer; });
  medians.step = median([](const Times& step) { return step.step; });
  return medians;
}

}  // namespace muster::nn
