// Decides about a training step's update on the device: whether to skip it because gradients
// overflowed, its step size, and the next step's loss scale.
//
// Everything that varies between steps is read from memory, so that all steps make the same calls,
// which can be captured once. Pointers are accessible to the device's kernels.
#ifndef MUSTER_KERNELS_UPDATE_H_
#define MUSTER_KERNELS_UPDATE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/loss_result.h"

namespace muster::kernels {

// The loss scale (Micikevicius et al. 2018) and the state that it depends on.
struct LossScaleState {
  double scale = 1;
  uint64_t clean_steps = 0;       // steps since the scale changed or a step overflowed
  uint64_t skipped_steps = 0;     // steps skipped since the training began
  uint64_t overflows_in_row = 0;  // overflows at a scale that cannot decrease further
};

struct LossScaleRules {
  bool fixed = false;
  double backoff_factor = 0.5;  // factor of the scale after an overflow
  double growth_factor = 2;     // factor after growth_interval steps without overflow
  uint64_t growth_interval = 2000;
};

// Constant during a training.
struct UpdateRules {
  bool scales_loss = false;
  LossScaleRules loss_scale;  // if scales_loss
  double clip_norm = 0;       // limit of the global gradient norm; 0: none
  double beta1 = 0;           // decay rates of AdamW
  double beta2 = 0;
  double average_decay = 0;  // decay of the moving average of the weights
  uint64_t records = 1;      // length of the array of step records
};

// Inputs of one step.
struct StepScalars {
  uint64_t step = 0;  // counted from 0 since the training began
  double learning_rate = 0;
};

// State kept between steps.
struct UpdateState {
  LossScaleState loss_scale;
  // A loss was not finite, or no loss scale prevents overflow: all later steps are skipped.
  uint32_t diverged = 0;
};

// Scalars that the kernels of an update read.
struct UpdateScalars {
  double learning_rate = 0;
  double gradient_scale = 1;  // applied to each gradient first
  double decay_scale = 1;     // applied to weight decay
  double step_size = 0;       // AdamW: learning_rate / (1 - beta1^t) in update t, counted from 1
  double root_scale = 1;      // AdamW: 1 / sqrt(1 - beta2^t)
  float average_weight = 1;   // weight of the new values in the moving average
  uint32_t skip = 0;          // nonzero: no update
};

// The result of a step, read by the host.
struct StepRecord {
  LossResult loss;
  double gradient_norm = 0;  // before clipping; only with clip_norm
  uint32_t skipped = 0;
  uint32_t diverged = 0;
  uint32_t failed = 0;        // nonzero: the other fields are invalid
  LossScaleState loss_scale;  // state after the step
};

struct UpdateInputs {
  const StepScalars* step = nullptr;
  const LossResult* losses = nullptr;  // [loss_count], whose sum is the step's loss
  int64_t loss_count = 1;
  const bool* finite = nullptr;  // whether all gradients are finite; only with scales_loss
  const double* sum_of_squares = nullptr;  // sum over the gradients; only with clip_norm
  // Nonzero value: the gradients of this and all later steps are invalid. Null: never.
  const uint32_t* failed = nullptr;
};

// Runs before a step's update. With loss scaling, a step is skipped if its loss or a gradient is
// not finite; without, a loss that is not finite means that training has diverged. Update t is that
// of the t-th step that was not skipped. If *inputs.failed is nonzero, there is no update and the
// state does not change. Writes records[step % rules.records].
using BeginUpdate = void(const UpdateRules& rules, const UpdateInputs& inputs, UpdateState* state,
                         UpdateScalars* scalars, StepRecord* records);

// If scalars->skip is set, copies `kept` to values [count], float32.
using RestoreSkipped = void(const UpdateScalars* scalars, const float* kept, float* values,
                            size_t count);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_UPDATE_H_
