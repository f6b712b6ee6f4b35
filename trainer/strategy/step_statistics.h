// Step time statistics: medians over the most recent steps.
#ifndef MUSTER_TRAINER_STRATEGY_STEP_STATISTICS_H_
#define MUSTER_TRAINER_STRATEGY_STEP_STATISTICS_H_

#include <cstddef>
#include <limits>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace muster::train {

// Medians of several durations per step. Keeps a bounded number of recent steps. Not thread-safe.
class DurationStatistics {
 public:
  // The first steps are slower because of cold caches, page faults and kernel setup.
  static constexpr size_t kWarmupSteps = 5;

  // `durations`: number of durations per step.
  explicit DurationStatistics(size_t durations) : durations_(durations) {}

  void Add(absl::Span<const absl::Duration> step);
  // Median of each duration over the last `window` steps; zeros if there are none.
  std::vector<absl::Duration> Median(size_t window = std::numeric_limits<size_t>::max()) const;
  // Medians without the warm-up steps; zeros if there are no other steps.
  std::vector<absl::Duration> SteadyMedian() const;
  // SteadyMedian, or Median if only warm-up steps were added.
  std::vector<absl::Duration> TypicalMedian() const;

 private:
  // Bounds memory for trainings of any length; large enough for a median.
  static constexpr size_t kCapacity = 1 << 14;
  const size_t durations_;
  size_t steps_ = 0;                  // number of steps added
  std::vector<absl::Duration> ring_;  // step s is at s % kCapacity
};

// Step times that every strategy reports.
struct StepTimes {
  absl::Duration step;                   // time from waiting for data to the end of the update
  absl::Duration data_wait;              // waiting for the loader
  absl::Duration exposed_communication;  // waiting for gradients and parameters of other ranks
  absl::Duration kernels;                // compute time, from input conversion to the update
};

// DurationStatistics for StepTimes.
class StepStatistics {
 public:
  void Add(const StepTimes& times) {
    statistics_.Add({times.step, times.data_wait, times.exposed_communication, times.kernels});
  }
  StepTimes Median(size_t window) const { return TimesOf(statistics_.Median(window)); }
  StepTimes TypicalMedian() const { return TimesOf(statistics_.TypicalMedian()); }

 private:
  static StepTimes TimesOf(const std::vector<absl::Duration>& medians) {
    return {medians[0], medians[1], medians[2], medians[3]};
  }
  DurationStatistics statistics_{4};
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_STEP_STATISTICS_H_
