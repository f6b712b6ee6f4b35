// The arithmetic of kernels/update.h and kernels/lars.h, shared by all implementations. Not for
// code that is compiled once per instruction set.
#ifndef MUSTER_KERNELS_UPDATE_RULES_H_
#define MUSTER_KERNELS_UPDATE_RULES_H_

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/lars.h"
#include "kernels/update.h"

namespace muster::kernels {

// Usual bounds: below 1 the forward pass overflows by itself; above 2^24 gradients that do not
// overflow are dominated by rounding errors.
inline constexpr double kSmallestLossScale = 1;
inline constexpr double kLargestLossScale = 1 << 24;
// Number of consecutive overflows at the smallest scale after which training has diverged.
inline constexpr uint64_t kLossScalePatience = 20;

MUSTER_HOST_DEVICE inline bool IsFinite(double value) { return value - value == 0; }

// Updates the loss scale after a step. Depends only on the steps' overflows: ranks that agree on
// those agree on the scale.
MUSTER_HOST_DEVICE inline void AdvanceLossScale(const LossScaleRules& rules, bool overflowed,
                                                LossScaleState& state) {
  if (overflowed) {
    ++state.skipped_steps;
    state.clean_steps = 0;
    const bool falls = !rules.fixed && state.scale > kSmallestLossScale;
    const double fallen = state.scale * rules.backoff_factor;
    if (falls) state.scale = fallen < kSmallestLossScale ? kSmallestLossScale : fallen;
    state.overflows_in_row = falls ? 0 : state.overflows_in_row + 1;
    return;
  }
  state.overflows_in_row = 0;
  if (rules.fixed || ++state.clean_steps < rules.growth_interval) return;
  state.clean_steps = 0;
  const double grown = state.scale * rules.growth_factor;
  state.scale = grown > kLargestLossScale ? kLargestLossScale : grown;
}

// Weight of the parameters after update `update`, counted from 0, in their moving average. Early
// updates use a smaller decay; with a constant decay, the initial weights would dominate the
// average for thousands of steps.
MUSTER_HOST_DEVICE inline float AverageWeight(double decay, uint64_t update) {
  if (update == 0) return 1;
  const double done = static_cast<double>(update);
  const double young = (1 + done) / (10 + done);
  return static_cast<float>(1 - (young < decay ? young : decay));
}

// The part of BeginUpdate that depends only on the step, for update number `update`, counted from
// 0. Returns the gradients' norm.
MUSTER_HOST_DEVICE inline double SetScalars(const UpdateRules& rules, double learning_rate,
                                            uint64_t update, double loss_scale,
                                            const double* sum_of_squares, UpdateScalars& scalars) {
  scalars = UpdateScalars();
  scalars.learning_rate = learning_rate;
  scalars.gradient_scale = 1 / loss_scale;
  double norm = 0;
  if (rules.clip_norm > 0) {
    norm = scalars.gradient_scale * sqrt(*sum_of_squares);
    // Like torch.nn.utils.clip_grad_norm_. A NaN norm is kept, so that divergence is visible.
    const double limit = rules.clip_norm / (norm + 1e-6);
    if (!(limit > 1)) scalars.gradient_scale *= limit;
  }
  const double t = static_cast<double>(update + 1);
  scalars.step_size = learning_rate / (1 - pow(rules.beta1, t));
  scalars.root_scale = 1 / sqrt(1 - pow(rules.beta2, t));
  scalars.average_weight = AverageWeight(rules.average_decay, update);
  return norm;
}

MUSTER_HOST_DEVICE inline void DecideUpdate(const UpdateRules& rules, const UpdateInputs& inputs,
                                            UpdateState& state, UpdateScalars& scalars,
                                            StepRecord* records) {
  const StepScalars step = *inputs.step;
  StepRecord& record = records[step.step % rules.records];
  record = StepRecord();
  for (int64_t i = 0; i < inputs.loss_count; ++i) {
    record.loss.loss_sum += inputs.losses[i].loss_sum;
    record.loss.correct += inputs.losses[i].correct;
  }
  // May be written by another device.
  if (inputs.failed != nullptr && *static_cast<const volatile uint32_t*>(inputs.failed) != 0) {
    scalars.skip = 1;
    record.failed = 1;
    return;
  }
  const bool finite = IsFinite(record.loss.loss_sum) && (!rules.scales_loss || *inputs.finite);
  const uint64_t skipped = state.loss_scale.skipped_steps;
  const double loss_scale = rules.scales_loss ? state.loss_scale.scale : 1;
  record.gradient_norm =
      SetScalars(rules, step.learning_rate, step.step < skipped ? 0 : step.step - skipped,
                 loss_scale, inputs.sum_of_squares, scalars);
  if (!finite || state.diverged != 0) scalars.skip = 1;
  if (rules.scales_loss && state.diverged == 0) {
    AdvanceLossScale(rules.loss_scale, !finite, state.loss_scale);
  }
  const bool patient = rules.scales_loss && state.loss_scale.overflows_in_row < kLossScalePatience;
  if (!finite && !patient) state.diverged = 1;
  record.skipped = scalars.skip;
  record.diverged = state.diverged;
  record.loss_scale = state.loss_scale;
}

// LarsRates for one tensor, given the sums of squares of its parameters and its gradients.
MUSTER_HOST_DEVICE inline UpdateScalars LarsRate(const LarsOptions& options, bool adapted,
                                                 const UpdateScalars& scalars,
                                                 double parameter_squares,
                                                 double gradient_squares) {
  double ratio = 1;
  if (adapted) {
    const double norm = sqrt(parameter_squares);
    const double gradient_norm = scalars.gradient_scale * sqrt(gradient_squares);
    if (norm != 0 && gradient_norm != 0) {
      ratio = options.trust_coefficient * norm / (gradient_norm + options.weight_decay * norm);
    }
  }
  const double rate = scalars.learning_rate * ratio;
  UpdateScalars result = scalars;
  result.learning_rate = 1;
  result.gradient_scale = rate * scalars.gradient_scale;
  result.decay_scale = rate;
  return result;
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_UPDATE_RULES_H_
