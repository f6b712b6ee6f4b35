// Elementwise activations and sums over float32 arrays of any shape.
//
// NaN stays NaN through every activation, as in PyTorch, so that a run that diverged shows.
#ifndef MUSTER_KERNELS_ACTIVATION_H_
#define MUSTER_KERNELS_ACTIVATION_H_

#include <cstddef>

namespace muster::kernels {

enum class Activation {
  kNone,
  kRelu,   // max(0, x)
  kRelu6,  // min(max(0, x), 6)
};

// x [count] -> y [count]. y may be x.
using ReluForward = void(size_t count, const float* x, float* y);

// y [count], forward's output; dy [count] -> dx [count], zero where y is at a bound. dx may be dy.
using ReluBackward = void(size_t count, const float* y, const float* dy, float* dx);

using Relu6Forward = ReluForward;
using Relu6Backward = ReluBackward;

// The end of a residual block: a, b [count] -> y [count] = activation(a * scale_a + b). A null a is
// a branch that was dropped: y = activation(b). y may be a or b.
using AddForward = void(size_t count, const float* a, float scale_a, const float* b,
                        Activation activation, float* y);

// x [count] is added to y [count].
using Accumulate = void(size_t count, const float* x, float* y);

// x [count] -> y [count] = scale * x. y may be x.
using ScaledCopy = void(size_t count, float scale, const float* x, float* y);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_ACTIVATION_H_
