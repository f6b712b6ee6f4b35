// The data types in which a plan stores activations and computes products.
#ifndef MUSTER_TRAINER_GRAPH_PRECISION_H_
#define MUSTER_TRAINER_GRAPH_PRECISION_H_

#include "kernels/data_type.h"

namespace muster::nn {

// Parameters, their gradients, batch norm's statistics, the batch, the logits and the loss are
// always float32.
struct Precision {
  kernels::DataType activations = kernels::DataType::kFloat32;  // and of gradients
  // Type of the operands of convolutions and linear layers; products are accumulated in float32.
  kernels::DataType compute = kernels::DataType::kFloat32;
};

// Precision of level O0 (all float32), O1 (low-precision products), O2 or O3 (also low-precision
// activations; O3 additionally affects the optimizer). `low` is bfloat16 or float16.
constexpr Precision PrecisionOf(int level, kernels::DataType low) {
  return {.activations = level >= 2 ? low : kernels::DataType::kFloat32,
          .compute = level >= 1 ? low : kernels::DataType::kFloat32};
}

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PRECISION_H_
