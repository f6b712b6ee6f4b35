// The factor on the loss that keeps small gradients within float16's range (Micikevicius et al.
// 2018): as large as overflow allows.
#ifndef MUSTER_WORKER_TRAIN_LOSS_SCALE_H_
#define MUSTER_WORKER_TRAIN_LOSS_SCALE_H_

#include <cstdint>

#include "proto/muster/v1/job.pb.h"

namespace muster::train {

// All that changes from step to step; what a checkpoint keeps.
struct LossScaleState {
  double scale = 1;
  uint64_t clean_steps = 0;       // since the scale changed or a step overflowed
  uint64_t skipped_steps = 0;     // in the training's whole life
  uint64_t overflows_in_row = 0;  // with a scale that could not fall any more
};

// After an overflow the scale falls by the backoff factor, after growth_interval steps without any
// it grows; a fixed one stays. A function of the steps' outcomes alone: ranks that agree on each
// step's overflow agree on the scale. For one training thread.
class LossScale {
 public:
  // The literature's bounds: below 1 the forward pass overflows by itself; beyond 2^24 gradients
  // that still do not overflow are rounding errors.
  static constexpr double kSmallest = 1;
  static constexpr double kLargest = 1 << 24;
  // Overflows one after the other, with a scale that cannot fall, after which training has
  // diverged.
  static constexpr uint64_t kPatience = 20;

  // `spec` with its defaults filled in.
  explicit LossScale(const v1::LossScaleSpec& spec);

  double scale() const { return state_.scale; }
  uint64_t skipped_steps() const { return state_.skipped_steps; }
  // Smaller scales do not help.
  bool diverged() const { return state_.overflows_in_row >= kPatience; }

  // After each step: whether it overflowed anywhere and was skipped.
  void StepDone(bool overflowed);

  const LossScaleState& state() const { return state_; }
  // As a checkpoint has it. A fixed scale stays what the spec says.
  void Restore(const LossScaleState& state);

 private:
  const v1::LossScaleSpec spec_;
  LossScaleState state_;
};

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_LOSS_SCALE_H_
