#include "trainer/strategy/step_statistics.h"

#include <algorithm>

namespace muster::train {

void DurationStatistics::Add(absl::Span<const absl::Duration> step) {
  const size_t at = steps_++ % kCapacity * durations_;
  if (at == ring_.size()) ring_.resize(at + durations_);
  std::copy(step.begin(), step.end(), ring_.begin() + static_cast<std::ptrdiff_t>(at));
}

std::vector<absl::Duration> DurationStatistics::Median(size_t window) const {
  std::vector<absl::Duration> medians(durations_);
  const size_t count = std::min({window, steps_, kCapacity});
  if (count == 0) return medians;
  std::vector<absl::Duration> values(count);
  for (size_t i = 0; i < durations_; ++i) {
    for (size_t age = 1; age <= count; ++age) {
      values[age - 1] = ring_[(steps_ - age) % kCapacity * durations_ + i];
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(values.begin(), middle, values.end());
    medians[i] = *middle;
  }
  return medians;
}

std::vector<absl::Duration> DurationStatistics::SteadyMedian() const {
  return Median(steps_ - std::min(steps_, kWarmupSteps));
}

std::vector<absl::Duration> DurationStatistics::TypicalMedian() const {
  return steps_ > kWarmupSteps ? SteadyMedian() : Median();
}

}  // namespace muster::train
