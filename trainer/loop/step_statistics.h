// Where the time of steps goes.
#ifndef MUSTER_TRAINER_LOOP_STEP_STATISTICS_H_
#define MUSTER_TRAINER_LOOP_STEP_STATISTICS_H_

#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/time/time.h"

namespace muster::train {

// Of a plan over several devices, and what is done between its calls; in this order.
inline constexpr std::array<const char*, 10> kStepPartNames = {
    "scatter",          "replicate", "forward", "gather",   "loss",
    "scatter_gradient", "backward",  "reduce",  "exchange", "update"};
inline constexpr size_t kLossPart = 4;
inline constexpr size_t kExchangePart = 8;
inline constexpr size_t kUpdatePart = 9;

struct StepTimes {
  absl::Duration step;                   // from the wait for its data to the end of its update
  absl::Duration data_wait;              // for the loader
  absl::Duration exposed_communication;  // for all-reduce, after backward had ended
  absl::Duration kernels;                // in computing, from the batch's bytes to the update
  // By kStepPartNames; zero without such a plan.
  std::array<absl::Duration, kStepPartNames.size()> parts = {};
  // Of a pipeline's stage: of one micro-batch forward and backward; of the whole step waiting for
  // other stages, and that with what it computes.
  absl::Duration stage_forward, stage_backward, stage_waiting, stage_span;
};

// Medians over the newest steps. Not thread-safe.
class StepStatistics {
 public:
  // Ignores the first `skip` steps: caches, page faults and kernels' first calls.
  explicit StepStatistics(size_t skip) : skip_(skip) {}
  void Add(const StepTimes& times);
  // Each over the newest `window` steps at most; zero before there is any.
  StepTimes Median(size_t window = std::numeric_limits<size_t>::max()) const;

 private:
  // Enough for a median, and a bound for a training of any length.
  static constexpr size_t kCapacity = 1 << 14;
  size_t skip_;
  size_t next_ = 0;  // where the next goes once the ring is full
  std::vector<StepTimes> ring_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_STEP_STATISTICS_H_
