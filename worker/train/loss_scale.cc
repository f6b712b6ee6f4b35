#include "worker/train/loss_scale.h"

#include <algorithm>

namespace muster::train {

LossScale::LossScale(const v1::LossScaleSpec& spec) : spec_(spec) {
  state_.scale = std::clamp(spec.initial(), kSmallest, kLargest);
}

void LossScale::StepDone(bool overflowed) {
  if (overflowed) {
    ++state_.skipped_steps;
    state_.clean_steps = 0;
    const bool falls = !spec_.fixed() && state_.scale > kSmallest;
    if (falls) state_.scale = std::max(kSmallest, state_.scale * spec_.backoff_factor());
    state_.overflows_in_row = falls ? 0 : state_.overflows_in_row + 1;
    return;
  }
  state_.overflows_in_row = 0;
  if (spec_.fixed() || ++state_.clean_steps < spec_.growth_interval()) return;
  state_.clean_steps = 0;
  state_.scale = std::min(kLargest, state_.scale * spec_.growth_factor());
}

void LossScale::Restore(const LossScaleState& state) {
  const double scale = spec_.fixed() ? state_.scale : state.scale;
  state_ = state;
  state_.scale = std::clamp(scale, kSmallest, kLargest);
}

}  // namespace muster::train
