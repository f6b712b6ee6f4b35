// Elementwise activations over float32 arrays of any shape.
#ifndef MUSTER_KERNELS_ACTIVATION_H_
#define MUSTER_KERNELS_ACTIVATION_H_

#include <cstddef>

namespace muster::kernels {

// x [count] -> y [count] = max(0, x); NaN stays. y may be x.
using ReluForward = void(size_t count, const float* x, float* y);

// y [count], forward's output; dy [count] -> dx [count]. dx may be dy.
using ReluBackward = void(size_t count, const float* y, const float* dy, float* dx);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_ACTIVATION_H_
