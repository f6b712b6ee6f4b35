// The arithmetic of elementwise kernels, one element (or one vector of elements) at a time.
//
// T is float, or a vector of floats whose operators and conditional work lane by lane. This header
// is compiled once per instruction set: the file that includes it defines MUSTER_INSTRUCTION_SET,
// and every function is in a namespace of that name, so that the linker never merges a function
// compiled for AVX-512 with one compiled for less.
#ifndef MUSTER_KERNELS_FUNCTORS_H_
#define MUSTER_KERNELS_FUNCTORS_H_

#include "kernels/host_device.h"

#ifndef MUSTER_INSTRUCTION_SET
#error "define MUSTER_INSTRUCTION_SET before including kernels/functors.h"
#endif

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// See SgdStep in kernels/optimizer.h.
template <typename T>
struct SgdFunctor {
  T learning_rate, momentum, weight_decay, gradient_scale;
  bool nesterov;
  MUSTER_HOST_DEVICE void operator()(T& parameter, T& velocity, T gradient) const {
    gradient = gradient_scale * gradient + weight_decay * parameter;
    velocity = momentum * velocity + gradient;
    parameter = parameter - learning_rate * (nesterov ? gradient + momentum * velocity : velocity);
  }
};

// See AdamWStep in kernels/optimizer.h.
template <typename T>
struct AdamWFunctor {
  T gradient_scale;
  T decay;  // 1 - learning_rate * weight_decay
  T beta1, one_less_beta1;
  T beta2, one_less_beta2;
  T root_scale;  // 1 / sqrt(bias_correction2)
  T epsilon;
  T step_size;  // learning_rate / bias_correction1
  template <typename SquareRoot>
  MUSTER_HOST_DEVICE void operator()(T& parameter, T& exp_avg, T& exp_avg_sq, T gradient,
                                     const SquareRoot& square_root) const {
    gradient = gradient_scale * gradient;
    exp_avg = beta1 * exp_avg + one_less_beta1 * gradient;
    exp_avg_sq = beta2 * exp_avg_sq + one_less_beta2 * gradient * gradient;
    const T deviation = square_root(exp_avg_sq) * root_scale + epsilon;
    parameter = decay * parameter - step_size * (exp_avg / deviation);
  }
};

template <typename T>
struct AffineFunctor {
  T scale, shift;
  MUSTER_HOST_DEVICE T operator()(T x) const { return x * scale + shift; }
};

// NaN stays NaN, so that divergence is visible.
template <typename T>
struct ReluFunctor {
  MUSTER_HOST_DEVICE T operator()(T x) const { return x < T{} ? T{} : x; }
};

// Gradient of ReLU, given its output; zero where the output is zero, as in PyTorch.
template <typename T>
struct ReluBackwardFunctor {
  MUSTER_HOST_DEVICE T operator()(T y, T dy) const { return y <= T{} ? T{} : dy; }
};

template <typename T>
struct Relu6Functor {
  MUSTER_HOST_DEVICE T operator()(T x) const {
    const T six = T{} + 6.0f;
    const T positive = x < T{} ? T{} : x;
    return positive > six ? six : positive;
  }
};

// Gradient of ReLU6, given its output; also zero where the output is 6.
template <typename T>
struct Relu6BackwardFunctor {
  MUSTER_HOST_DEVICE T operator()(T y, T dy) const {
    const T above = y <= T{} ? T{} : dy;
    return y >= T{} + 6.0f ? T{} : above;
  }
};

// dx = scale * (dy - mean(dy) - x_hat * mean(dy * x_hat)) with x_hat = (x - mean) *
// inverse_deviation, rearranged as dx = scale * dy + slope * x + offset.
template <typename T>
struct BatchNormBackwardFunctor {
  T scale, slope, offset;
  MUSTER_HOST_DEVICE T operator()(T x, T dy) const { return scale * dy + (slope * x + offset); }
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_FUNCTORS_H_
