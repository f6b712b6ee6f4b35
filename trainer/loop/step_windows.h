// Windows of a few steps each, by which the coordinator compares a rank with its peers.
#ifndef MUSTER_TRAINER_LOOP_STEP_WINDOWS_H_
#define MUSTER_TRAINER_LOOP_STEP_WINDOWS_H_

#include <cstdint>

#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "trainer/strategy/step_statistics.h"

namespace muster::train {

// Means of a rank's own times over windows of steps. All ranks call SetLength and Discard after the
// same steps and with the same lengths, so that their windows cover the same steps: an interruption
// of a whole machine, or a step that is slow by design, then is in the same window of each rank.
//
// The mean, and not the median, is taken over the steps of a window: a rank that is interrupted in
// every third step is slow although its median step is not. Robustness against single outliers is
// left to the comparison of several windows.
//
// Not thread-safe.
class StepWindowRecorder {
 public:
  // `stage`: of a pipeline. `synchronous`: StepTimes::kernels is the time of the computation, not
  // only that of launching it.
  StepWindowRecorder(uint32_t stage, bool synchronous);

  // Number of steps of each window from the next step on; 0: record none. A change discards the
  // current window.
  void SetLength(uint32_t steps);
  // Discards the current window because its times are not comparable: one rank does more than the
  // others, such as writing a checkpoint.
  void Discard() { sums_ = Sums(); }
  // Adds a step of this rank. Returns whether a window has ended.
  bool Add(uint64_t completed_steps, uint32_t samples, const StepTimes& times);

  // The newest windows.
  const v1::StepWindows& windows() const { return windows_; }

 private:
  struct Sums {
    uint32_t steps = 0;
    uint64_t samples = 0;
    StepTimes times;
  };

  const bool synchronous_;
  uint32_t length_ = 0;
  uint32_t warmup_left_;
  Sums sums_;
  v1::StepWindows windows_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_STEP_WINDOWS_H_
