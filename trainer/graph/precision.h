// In which types a plan keeps activations and multiplies.
#ifndef MUSTER_TRAINER_GRAPH_PRECISION_H_
#define MUSTER_TRAINER_GRAPH_PRECISION_H_

#include "kernels/data_type.h"

namespace muster::nn {

// Parameters, their gradients, batch norm's statistics, the batch, the logits and the loss are
// float32 whatever the precision is.
struct Precision {
  kernels::DataType activations = kernels::DataType::kFloat32;  // in memory, and their gradients
  // What operands of convolutions and linear layers are rounded to; products are added in float32.
  kernels::DataType compute = kernels::DataType::kFloat32;
};

// Of the levels O0 (nothing is low), O1 (products are) and O2 and O3 (activations are too; what O3
// adds is in the optimizer). `low` is bfloat16 or float16.
constexpr Precision PrecisionOf(int level, kernels::DataType low) {
  return {.activations = level >= 2 ? low : kernels::DataType::kFloat32,
          .compute = level >= 1 ? low : kernels::DataType::kFloat32};
}

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PRECISION_H_
