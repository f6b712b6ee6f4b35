#include "worker/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace muster::train {

absl::StatusOr<Schedule> Schedule::Create(const v1::ScheduleSpec& spec, double base_rate,
                                          uint64_t total_steps, uint64_t steps_per_epoch) {
  if (!spec.name().empty() && spec.name() != "constant" && spec.name() != "cosine") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown schedule '", spec.name(), "'; known are constant, cosine"));
  }
  Schedule schedule;
  schedule.base_rate_ = base_rate;
  schedule.warmup_steps_ = std::round(spec.warmup_epochs() * static_cast<double>(steps_per_epoch));
  schedule.total_steps_ = static_cast<double>(total_steps);
  schedule.cosine_ = spec.name() == "cosine";
  return schedule;
}

double Schedule::LearningRate(uint64_t step) const {
  const auto position = static_cast<double>(step);
  // The first step already learns something: a rate of exactly zero would waste it.
  if (position < warmup_steps_) return base_rate_ * (position + 1) / (warmup_steps_ + 1);
  if (!cosine_ || total_steps_ <= warmup_steps_) return base_rate_;
  const double done = (position - warmup_steps_) / (total_steps_ - warmup_steps_);
  return base_rate_ * 0.5 * (1 + std::cos(M_PI * std::min(done, 1.0)));
}

uint64_t TotalSteps(const v1::TrainSpec& spec, uint64_t steps_per_epoch) {
  uint64_t total = std::numeric_limits<uint64_t>::max();
  if (spec.epochs() > 0) {
    // Rounded up, but not because 0.1 epochs of 10 steps are a little more than one in binary.
    const double steps = spec.epochs() * static_cast<double>(steps_per_epoch);
    total = static_cast<uint64_t>(std::min(std::ceil(steps - 1e-6), 1e18));
  }
  if (spec.max_steps() > 0) total = std::min<uint64_t>(total, spec.max_steps());
  if (spec.epochs() <= 0 && spec.max_steps() == 0) return 1;
  return std::max<uint64_t>(total, 1);
}

}  // namespace muster::train
