// Finds losses that are not finite or far above the recent ones.
#ifndef MUSTER_TRAINER_LOOP_LOSS_MONITOR_H_
#define MUSTER_TRAINER_LOOP_LOSS_MONITOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "proto/muster/v1/job.pb.h"

namespace muster::train {

// A spike is a loss that, compared with the last 64 finite losses, exceeds
//   - their median by 10 standard deviations, estimated from the median absolute deviation,
//   - 1.5 times their median, because losses on equal batches may hardly differ, and
//   - their median by a tenth of the median of the first 64: once the loss is tiny, single samples
//     dominate it.
// Losses of a run that is not finite, or that has not come back to within 5 standard deviations of
// the median, are one anomaly. The window includes the spikes, so that a loss that stays high
// becomes the new level.
//
// Not thread-safe.
class LossMonitor {
 public:
  // Adds the loss of a step. Returns an anomaly that begins with it.
  std::optional<v1::LossAnomaly> Add(uint64_t completed_steps, double loss);

 private:
  static constexpr size_t kWindow = 64;
  // Losses that are needed for a comparison.
  static constexpr size_t kFewest = 20;

  std::vector<double> window_;  // the newest losses, as a ring
  size_t next_ = 0;
  std::vector<double> sorted_;  // reused by Add
  double first_level_ = 0;      // median of the first window, or of what there is of it
  bool in_anomaly_ = false;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_LOSS_MONITOR_H_
