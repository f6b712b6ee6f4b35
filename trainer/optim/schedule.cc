#include "trainer/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::train {

absl::StatusOr<Schedule> Schedule::Create(const v1::ScheduleSpec& spec, double base_rate,
                                          uint64_t total_steps, uint64_t steps_per_epoch) {
  Schedule schedule;
  schedule.base_rate_ = base_rate;
  schedule.warmup_steps_ = std::round(spec.warmup_epochs() * static_cast<double>(steps_per_epoch));
  schedule.total_steps_ = static_cast<double>(total_steps);
  if (spec.name() == "cosine") {
    schedule.shape_ = Shape::kCosine;
  } else if (spec.name() == "step") {
    schedule.shape_ = Shape::kStep;
    RETURN_IF_ERROR(schedule.SetSteps(spec, steps_per_epoch));
  } else if (!spec.name().empty() && spec.name() != "constant") {
    return absl::InvalidArgumentError(absl::StrCat("train.schedule.name: unknown '", spec.name(),
                                                   "'; one of: constant, cosine, step"));
  }
  return schedule;
}

absl::Status Schedule::SetSteps(const v1::ScheduleSpec& spec, uint64_t steps_per_epoch) {
  // At least one step: a change before the first step would only change the base rate.
  const auto steps = [steps_per_epoch](double epochs) {
    const double steps = std::round(epochs * static_cast<double>(steps_per_epoch));
    return static_cast<uint64_t>(std::clamp(steps, 1.0, 1e18));
  };
  if (!(spec.factor() > 0) || !std::isfinite(spec.factor())) {
    return absl::InvalidArgumentError("train.schedule.factor: must be above 0");
  }
  factor_ = spec.factor();
  for (const double milestone : spec.milestones()) {
    if (!(milestone > 0)) {
      return absl::InvalidArgumentError("train.schedule.milestones: must be above 0");
    }
    milestones_.push_back(steps(milestone));
  }
  if (!(spec.every_epochs() >= 0)) {
    return absl::InvalidArgumentError("train.schedule.every_epochs: must be 0 or more");
  }
  if (spec.every_epochs() > 0) every_steps_ = steps(spec.every_epochs());
  if (milestones_.empty() && every_steps_ == 0) {
    return absl::InvalidArgumentError("train.schedule: step requires milestones or every_epochs");
  }
  return absl::OkStatus();
}

double Schedule::Multiplier(uint64_t step) const {
  switch (shape_) {
    case Shape::kConstant:
      return 1;
    case Shape::kCosine: {
      const double after_warmup = std::max(static_cast<double>(step) - warmup_steps_, 0.0);
      const double span = total_steps_ - warmup_steps_;
      // The warm-up spans the whole training.
      if (span <= 0) return 1;
      return 0.5 * (1 + std::cos(M_PI * std::min(after_warmup / span, 1.0)));
    }
    case Shape::kStep: {
      auto passed = static_cast<double>(
          std::count_if(milestones_.begin(), milestones_.end(),
                        [step](uint64_t milestone) { return step >= milestone; }));
      if (every_steps_ > 0) passed += static_cast<double>(step / every_steps_);
      return std::pow(factor_, passed);
    }
  }
  return 1;
}

double Schedule::LearningRate(uint64_t step) const {
  const auto position = static_cast<double>(step);
  const double rate = base_rate_ * Multiplier(step);
  // Starts above zero, because a step with a rate of zero would be wasted.
  return position < warmup_steps_ ? rate * (position + 1) / (warmup_steps_ + 1) : rate;
}

uint64_t TotalSteps(const v1::TrainSpec& spec, uint64_t steps_per_epoch) {
  uint64_t total = std::numeric_limits<uint64_t>::max();
  if (spec.epochs() > 0) {
    // Rounds up, with a tolerance for binary fractions: 0.1 epochs of 10 steps are one step.
    const double steps = spec.epochs() * static_cast<double>(steps_per_epoch);
    total = static_cast<uint64_t>(std::min(std::ceil(steps - 1e-6), 1e18));
  }
  if (spec.max_steps() > 0) total = std::min<uint64_t>(total, spec.max_steps());
  if (spec.epochs() <= 0 && spec.max_steps() == 0) return 1;
  return std::max<uint64_t>(total, 1);
}

}  // namespace muster::train
