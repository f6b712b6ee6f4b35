// The steps of optimizers over flat arrays, and the sums that go with them.
//
// Arrays are float32 [count], of any alignment, none overlapping another. Any thread. A step on two
// disjoint ranges, at once or one after the other, gives what one step over both would. Where an
// option says round_to, what the step leaves of parameters and states is rounded to that type, each
// value once, and what it takes is as it stands. Where scalars->skip says so nothing is done at
// all.
#ifndef MUSTER_KERNELS_OPTIMIZER_H_
#define MUSTER_KERNELS_OPTIMIZER_H_

#include <cstddef>

#include "kernels/data_type.h"
#include "kernels/update.h"

namespace muster::kernels {

struct SgdOptions {
  float momentum = 0;
  double weight_decay = 0;  // added to the gradient, as L2 regularisation is
  bool nesterov = false;
  DataType round_to = DataType::kFloat32;
};

// Stochastic gradient descent with momentum, as torch.optim.SGD without dampening:
//   g = gradient_scale * gradient + decay_scale * weight_decay * parameter
//   velocity = momentum * velocity + g
//   parameter -= learning_rate * (nesterov ? g + momentum * velocity : velocity)
// velocities are zero before the first step, and may be null when options.momentum is 0.
using SgdStep = void(const SgdOptions& options, const UpdateScalars* scalars, float* parameters,
                     float* velocities, const float* gradients, size_t count);

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  DataType round_to = DataType::kFloat32;
};

// Adam with decoupled weight decay (Loshchilov & Hutter 2019), as torch.optim.AdamW:
//   g = gradient_scale * gradient
//   parameter *= 1 - learning_rate * weight_decay
//   exp_avg = beta1 * exp_avg + (1 - beta1) * g
//   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g^2
//   parameter -= step_size * exp_avg / (sqrt(exp_avg_sq) * root_scale + epsilon)
// Both averages are zero before the first step.
using AdamWStep = void(const AdamWOptions& options, const UpdateScalars* scalars, float* parameters,
                       float* exp_avg, float* exp_avg_sq, const float* gradients, size_t count);

// -> sum, one value where the array is: added up in double, in an order that count alone decides,
// bit-equal on every processor; a GPU has an order of its own.
using SumOfSquares = void(const float* x, size_t count, double* sum);

// y += average_weight * (x - y); x itself where the weight is 1.
using Lerp = void(const UpdateScalars* scalars, const float* x, float* y, size_t count);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_OPTIMIZER_H_
