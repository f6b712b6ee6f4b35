// The arithmetic of elementwise kernels, one element (or one vector of elements) at a time.
//
// T is float, or a vector of floats on which operators and the conditional work lane by lane. This
// header is compiled once per instruction set: its includer defines MUSTER_INSTRUCTION_SET, and
// every function lives in a namespace of that name, so that the linker never gives a body compiled
// for AVX-512 to a caller compiled for less.
#ifndef MUSTER_KERNELS_FUNCTORS_H_
#define MUSTER_KERNELS_FUNCTORS_H_

#include "kernels/host_device.h"

#ifndef MUSTER_INSTRUCTION_SET
#error "define MUSTER_INSTRUCTION_SET before including kernels/functors.h"
#endif

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// PyTorch's SGD with momentum and L2 weight decay.
template <typename T>
struct SgdFunctor {
  T learning_rate, momentum, weight_decay;
  MUSTER_HOST_DEVICE void operator()(T& parameter, T& velocity, T gradient) const {
    gradient = gradient + weight_decay * parameter;
    velocity = momentum * velocity + gradient;
    parameter = parameter - learning_rate * velocity;
  }
};

template <typename T>
struct AffineFunctor {
  T scale, shift;
  MUSTER_HOST_DEVICE T operator()(T x) const { return x * scale + shift; }
};

// NaN stays NaN, so that a run that diverged shows.
template <typename T>
struct ReluFunctor {
  MUSTER_HOST_DEVICE T operator()(T x) const { return x < T{} ? T{} : x; }
};

// The gradient through ReLU by its output; zero where the output is zero, as in PyTorch.
template <typename T>
struct ReluBackwardFunctor {
  MUSTER_HOST_DEVICE T operator()(T y, T dy) const { return y <= T{} ? T{} : dy; }
};

// dx = scale * (dy - mean(dy) - x_hat * mean(dy * x_hat)), with x_hat = (x - mean) *
// inverse_deviation, gathered into dx = scale * dy + slope * x + offset.
template <typename T>
struct BatchNormBackwardFunctor {
  T scale, slope, offset;
  MUSTER_HOST_DEVICE T operator()(T x, T dy) const { return scale * dy + (slope * x + offset); }
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_FUNCTORS_H_
