// Optimizer steps over flat arrays, and related reductions.
//
// Arrays are float32 [count], of any alignment, and do not overlap. Thread-safe. Steps on two
// disjoint ranges, concurrent or not, give the same result as one step over both. With round_to,
// the new parameters and states are rounded to that type, each value once; inputs are not rounded.
// Does nothing if scalars->skip is set.
#ifndef MUSTER_KERNELS_OPTIMIZER_H_
#define MUSTER_KERNELS_OPTIMIZER_H_

#include <cstddef>

#include "kernels/data_type.h"
#include "kernels/update.h"

namespace muster::kernels {

struct SgdOptions {
  float momentum = 0;
  double weight_decay = 0;  // added to the gradient, as in L2 regularisation
  bool nesterov = false;
  DataType round_to = DataType::kFloat32;
};

// Stochastic gradient descent with momentum, like torch.optim.SGD without dampening:
//   g = gradient_scale * gradient + decay_scale * weight_decay * parameter
//   velocity = momentum * velocity + g
//   parameter -= learning_rate * (nesterov ? g + momentum * velocity : velocity)
// velocities are zero before the first step, and may be null if options.momentum is 0.
using SgdStep = void(const SgdOptions& options, const UpdateScalars* scalars, float* parameters,
                     float* velocities, const float* gradients, size_t count);

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  DataType round_to = DataType::kFloat32;
};

// Adam with decoupled weight decay (Loshchilov & Hutter 2019), like torch.optim.AdamW:
//   g = gradient_scale * gradient
//   parameter *= 1 - learning_rate * weight_decay
//   exp_avg = beta1 * exp_avg + (1 - beta1) * g
//   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g^2
//   parameter -= step_size * exp_avg / (sqrt(exp_avg_sq) * root_scale + epsilon)
// Both averages are zero before the first step.
using AdamWStep = void(const AdamWOptions& options, const UpdateScalars* scalars, float* parameters,
                       float* exp_avg, float* exp_avg_sq, const float* gradients, size_t count);

// -> *sum, in the memory of the array: accumulated in double, in an order that depends only on
// count; bitwise equal on all CPUs, while GPUs use another order.
using SumOfSquares = void(const float* x, size_t count, double* sum);

// y += average_weight * (x - y); exactly x if the weight is 1.
using Lerp = void(const UpdateScalars* scalars, const float* x, float* y, size_t count);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_OPTIMIZER_H_
