// The factor on the loss that keeps small gradients within float16's range (Micikevicius et al.
// 2018): as large as overflow allows. kernels/update_rules.h has the rules.
#ifndef MUSTER_TRAINER_PRECISION_LOSS_SCALE_H_
#define MUSTER_TRAINER_PRECISION_LOSS_SCALE_H_

#include "kernels/update.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::train {

// All that changes from step to step; what a checkpoint keeps.
using kernels::LossScaleState;

// `spec` with its defaults filled in.
kernels::LossScaleRules LossScaleRulesOf(const v1::LossScaleSpec& spec);
LossScaleState InitialLossScale(const v1::LossScaleSpec& spec);
// As a checkpoint has it. A fixed scale stays what the spec says.
LossScaleState RestoredLossScale(const v1::LossScaleSpec& spec, const LossScaleState& state);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_PRECISION_LOSS_SCALE_H_
