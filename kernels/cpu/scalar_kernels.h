// Operations on so few elements that vectors would not show: one implementation for every
// instruction set.
#ifndef MUSTER_KERNELS_CPU_SCALAR_KERNELS_H_
#define MUSTER_KERNELS_CPU_SCALAR_KERNELS_H_

#include "kernels/batch_norm.h"
#include "kernels/dropout.h"
#include "kernels/update.h"

namespace muster::kernels::cpu {

kernels::BatchNormScale BatchNormScale;
kernels::BatchNormRunning BatchNormRunning;
kernels::Dropout Dropout;
kernels::DrawBlocks DrawBlocks;
kernels::BeginUpdate BeginUpdate;
kernels::LarsRates LarsRates;
kernels::RestoreSkipped RestoreSkipped;

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_SCALAR_KERNELS_H_
