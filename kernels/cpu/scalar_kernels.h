// Operations on so few elements that vectors would not show: one implementation for every
// instruction set.
#ifndef MUSTER_KERNELS_CPU_SCALAR_KERNELS_H_
#define MUSTER_KERNELS_CPU_SCALAR_KERNELS_H_

#include "kernels/dropout.h"

namespace muster::kernels::cpu {

kernels::Dropout Dropout;

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_SCALAR_KERNELS_H_
