// Elementwise activations and sums over arrays of any shape. All arrays of a call have one storage
// type.
//
// NaN passes through every activation, as in PyTorch, so that divergence is visible.
#ifndef MUSTER_KERNELS_ACTIVATION_H_
#define MUSTER_KERNELS_ACTIVATION_H_

#include <cstddef>

#include "kernels/data_type.h"

namespace muster::kernels {

enum class Activation {
  kNone,
  kRelu,   // max(0, x)
  kRelu6,  // min(max(0, x), 6)
};

// x [count] -> y [count] = activation(x). y may be x.
using ActivationForward = void(DataType type, Activation activation, size_t count, const void* x,
                               void* y);

// y [count], output of forward; dy [count] -> dx [count], zero where y is at a bound. dx may be dy.
using ActivationBackward = void(DataType type, Activation activation, size_t count, const void* y,
                                const void* dy, void* dx);

// The end of a residual block: a, b [count] -> y [count] = activation(a * *scale_a + b); a null
// scale is 1. With a null a, or a scale of 0, the branch is dropped: y = activation(b), even if a
// contains NaN. y may be a or b.
using AddForward = void(DataType type, size_t count, const void* a, const float* scale_a,
                        const void* b, Activation activation, void* y);

// Adds x [count] to y [count].
using Accumulate = void(DataType type, size_t count, const void* x, void* y);

// x [count] -> y [count] = *scale * x; zeros if the scale is 0, even if x contains NaN. y may be x.
using ScaledCopy = void(DataType type, size_t count, const float* scale, const void* x, void* y);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_ACTIVATION_H_
