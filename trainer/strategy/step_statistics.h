// Where the time of steps goes: medians over the newest steps.
#ifndef MUSTER_TRAINER_STRATEGY_STEP_STATISTICS_H_
#define MUSTER_TRAINER_STRATEGY_STEP_STATISTICS_H_

#include <cstddef>
#include <limits>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace muster::train {

// Medians of several durations of each step. Keeps a bounded number of the newest steps. Not
// thread-safe.
class DurationStatistics {
 public:
  // Caches, page faults and kernels' first calls make the first steps slower.
  static constexpr size_t kWarmupSteps = 5;

  // `durations`: of each step.
  explicit DurationStatistics(size_t durations) : durations_(durations) {}

  void Add(absl::Span<const absl::Duration> step);
  // Each over the newest `window` steps at most; zeros before there is any.
  std::vector<absl::Duration> Median(size_t window = std::numeric_limits<size_t>::max()) const;
  // Without the warm-up steps; zeros where there are no others.
  std::vector<absl::Duration> SteadyMedian() const;
  // SteadyMedian, or Median for a training too short for a steady state.
  std::vector<absl::Duration> TypicalMedian() const;

 private:
  // Enough for a median, and a bound for a training of any length.
  static constexpr size_t kCapacity = 1 << 14;
  const size_t durations_;
  size_t steps_ = 0;                  // added
  std::vector<absl::Duration> ring_;  // step s at s % kCapacity
};

// Phases of a step that every strategy has.
struct StepTimes {
  absl::Duration step;                   // from the wait for its data to the end of its update
  absl::Duration data_wait;              // for the loader
  absl::Duration exposed_communication;  // waiting for gradients and parameters of other ranks
  absl::Duration kernels;                // in computing, from the batch's bytes to the update
};

// As DurationStatistics, of StepTimes.
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
