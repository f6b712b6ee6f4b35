// Operations on so few elements that vectorisation is not worthwhile, with one implementation for
// all instruction sets.
#ifndef MUSTER_KERNELS_CPU_TABLE_SCALAR_KERNELS_H_
#define MUSTER_KERNELS_CPU_TABLE_SCALAR_KERNELS_H_

#include "kernels/batch_norm.h"
#include "kernels/dropout.h"
#include "kernels/lars.h"
#include "kernels/update.h"

namespace muster::kernels::cpu {

kernels::BatchNormScale BatchNormScale;
kernels::BatchNormToSums BatchNormToSums;
kernels::BatchNormFromSums BatchNormFromSums;
kernels::BatchNormRunning BatchNormRunning;
// 0: deriving the mask from y costs little, because y is in the cache.
kernels::BatchNormMaskBytes BatchNormMaskBytes;
kernels::BatchNormPoolBytes BatchNormPoolBytes;  // 0
kernels::Dropout Dropout;
kernels::DrawBlocks DrawBlocks;
kernels::BeginUpdate BeginUpdate;
kernels::RestoreSkipped RestoreSkipped;

// LarsRate of kernels/update_rules.h.
UpdateScalars LarsRate(const LarsOptions& options, bool adapted, const UpdateScalars& scalars,
                       double parameter_squares, double gradient_squares);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_TABLE_SCALAR_KERNELS_H_
