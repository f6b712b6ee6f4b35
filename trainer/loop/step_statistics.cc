#include "trainer/loop/step_statistics.h"

#include <algorithm>

namespace muster::train {

void StepStatistics::Add(const StepTimes& times) {
  if (skip_ > 0) {
    --skip_;
    return;
  }
  if (ring_.size() < kCapacity) {
    ring_.push_back(times);
    return;
  }
  ring_[next_] = times;
  next_ = (next_ + 1) % kCapacity;
}

StepTimes StepStatistics::Median(size_t window) const {
  const size_t count = std::min(window, ring_.size());
  if (count == 0) return {};
  const auto median_of = [&](const auto& field) {
    std::vector<absl::Duration> values;
    for (size_t age = 1; age <= count; ++age) {
      values.push_back(field(ring_[(next_ + ring_.size() - age) % ring_.size()]));
    }
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(count / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  };
  const auto median = [&](absl::Duration StepTimes::*field) {
    return median_of([&](const StepTimes& times) { return times.*field; });
  };
  StepTimes medians;
  medians.step = median(&StepTimes::step);
  medians.data_wait = median(&StepTimes::data_wait);
  medians.exposed_communication = median(&StepTimes::exposed_communication);
  medians.kernels = median(&StepTimes::kernels);
  for (auto field : {&StepTimes::stage_forward, &StepTimes::stage_backward,
                     &StepTimes::stage_waiting, &StepTimes::stage_span}) {
    medians.*field = median(field);
  }
  for (size_t part = 0; part < medians.parts.size(); ++part) {
    medians.parts[part] = median_of([&](const StepTimes& times) { return times.parts[part]; });
  }
  return medians;
}

}  // namespace muster::train
