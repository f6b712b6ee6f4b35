// Dynamic loss scaling for float16 (Micikevicius et al. 2018): keeps small gradients in range with
// the largest scale that does not overflow. The rules are in kernels/update_rules.h.
#ifndef MUSTER_TRAINER_PRECISION_LOSS_SCALE_H_
#define MUSTER_TRAINER_PRECISION_LOSS_SCALE_H_

#include "kernels/update.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::train {

// State that changes between steps and is saved in checkpoints.
using kernels::LossScaleState;

// `spec` must have its defaults filled in.
kernels::LossScaleRules LossScaleRulesOf(const v1::LossScaleSpec& spec);
LossScaleState InitialLossScale(const v1::LossScaleSpec& spec);
// State restored from a checkpoint. A fixed scale is always that of the spec.
LossScaleState RestoredLossScale(const v1::LossScaleSpec& spec, const LossScaleState& state);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_PRECISION_LOSS_SCALE_H_
