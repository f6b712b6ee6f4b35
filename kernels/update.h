// What decides a training step's update where it runs: none where gradients overflowed, how far it
// goes, and what the next step's loss is scaled by.
//
// All that differs from step to step is read from memory, so that the calls of a step are the same
// in every step and can be recorded once. Pointers are to where a device's kernels reach.
#ifndef MUSTER_KERNELS_UPDATE_H_
#define MUSTER_KERNELS_UPDATE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/loss_result.h"

namespace muster::kernels {

// The loss's scale (Micikevicius et al. 2018), and all that it depends on.
struct LossScaleState {
  double scale = 1;
  uint64_t clean_steps = 0;       // since the scale changed or a step overflowed
  uint64_t skipped_steps = 0;     // in the training's whole life
  uint64_t overflows_in_row = 0;  // with a scale that could not fall any more
};

struct LossScaleRules {
  bool fixed = false;
  double backoff_factor = 0.5;  // after an overflow
  double growth_factor = 2;     // after growth_interval steps without any
  uint64_t growth_interval = 2000;
};

// The same in every step of a training.
struct UpdateRules {
  bool scales_loss = false;
  LossScaleRules loss_scale;  // where it does
  double clip_norm = 0;       // of all gradients together; 0: none
  double beta1 = 0;           // AdamW's
  double beta2 = 0;
  double average_decay = 0;  // of the moving average of the weights
  uint64_t records = 1;      // length of the array of records
};

// Of one step.
struct StepScalars {
  uint64_t step = 0;  // counted from 0 in the training's whole life
  double learning_rate = 0;
};

// From step to step.
struct UpdateState {
  LossScaleState loss_scale;
  // A loss was no finite number, or no scale helps: no step changes anything any more.
  uint32_t diverged = 0;
};

// What the kernels of an update read.
struct UpdateScalars {
  double learning_rate = 0;
  double gradient_scale = 1;  // what each gradient is multiplied by before all else
  double decay_scale = 1;     // what a weight decay is multiplied by
  double step_size = 0;       // AdamW's: learning_rate / (1 - beta1^t) in the t-th update, from 1
  double root_scale = 1;      // AdamW's: 1 / sqrt(1 - beta2^t)
  float average_weight = 1;   // of the new values in the moving average
  uint32_t skip = 0;          // not 0: there is no update
};

// What is told of a step.
struct StepRecord {
  LossResult loss;
  double gradient_norm = 0;  // before clipping, where that is asked for
  uint32_t skipped = 0;
  uint32_t diverged = 0;
  uint32_t failed = 0;        // nothing else here means anything
  LossScaleState loss_scale;  // after the step
};

struct UpdateInputs {
  const StepScalars* step = nullptr;
  const LossResult* losses = nullptr;  // [parts], whose sum is the step's
  int64_t parts = 1;
  const bool* finite = nullptr;  // whether all gradients are; only where the loss is scaled
  const double* sum_of_squares = nullptr;  // of the gradients; only for clipping
  // Not 0: the gradients are worth nothing, and no later step's will be; null: that never happens.
  const uint32_t* failed = nullptr;
};

// Before a step's update. A step is skipped where the loss is scaled and it or a gradient is no
// finite number; where the loss is not scaled and is none, training has diverged. The t-th update
// is that of the t-th step that was not skipped. Where *inputs.failed says so there is no update,
// and the state stays as it is. records[step % rules.records] is written.
using BeginUpdate = void(const UpdateRules& rules, const UpdateInputs& inputs, UpdateState* state,
                         UpdateScalars* scalars, StepRecord* records);

// values [count], float32, become what `kept` has where scalars->skip says so.
using RestoreSkipped = void(const UpdateScalars* scalars, const float* kept, float* values,
                            size_t count);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_UPDATE_H_
