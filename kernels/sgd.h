// Stochastic gradient descent with momentum over flat arrays.
#ifndef MUSTER_KERNELS_SGD_H_
#define MUSTER_KERNELS_SGD_H_

#include <cstddef>

namespace muster::kernels {

struct SgdOptions {
  float learning_rate = 0;
  float momentum = 0;
  float weight_decay = 0;  // for all of the range; ranges that do not decay are calls of their own
};

// parameters, momentum, gradients: float32 [count], any alignment, none overlapping another. As
// PyTorch's SGD:
//   gradient += weight_decay * parameter;  momentum = m * momentum + gradient;  parameter -=
//   learning_rate * momentum
// The momentum array is zero before the first step. `momentum` may be null when options.momentum is
// 0. Any thread; calls on disjoint ranges may run at once and give what one call over both would.
void SgdStep(const SgdOptions& options, float* parameters, float* momentum, const float* gradients,
             size_t count);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_SGD_H_
