// Optimizer steps; see kernels/optimizer.h. Compiled once per instruction set.
#ifndef MUSTER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_BODY_H_
#define MUSTER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_BODY_H_

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <cstddef>

#include "kernels/cpu/vector/vector.h"
#include "kernels/functors.h"
#include "kernels/optimizer.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Rounds as if stored as Storage.
template <typename Storage, typename T>
inline T Rounded(T value) {
  Storage stored[Element<T>::kWidth];
  Element<T>::Store(stored, value);
  return Element<T>::Load(stored);
}

template <typename Storage>
struct SgdBody {
  const SgdFunctor<float>& step;
  float* parameters;
  float* velocities;
  const float* gradients;
  template <typename T>
  void Run(size_t i) const {
    const SgdFunctor<T> splatted{Element<T>::Splat(step.learning_rate),
                                 Element<T>::Splat(step.momentum),
                                 Element<T>::Splat(step.weight_decay),
                                 Element<T>::Splat(step.gradient_scale), step.nesterov};
    T parameter = Element<T>::Load(parameters + i);
    T velocity = velocities == nullptr ? T{} : Element<T>::Load(velocities + i);
    splatted(parameter, velocity, Element<T>::Load(gradients + i));
    Element<T>::Store(parameters + i, Rounded<Storage>(parameter));
    if (velocities != nullptr) Element<T>::Store(velocities + i, Rounded<Storage>(velocity));
  }
};

inline void SgdStep(const SgdOptions& options, const UpdateScalars* scalars, float* parameters,
                    float* velocities, const float* gradients, size_t count) {
  if (scalars->skip != 0) return;
  const SgdFunctor<float> step{static_cast<float>(scalars->learning_rate), options.momentum,
                               static_cast<float>(scalars->decay_scale * options.weight_decay),
                               static_cast<float>(scalars->gradient_scale), options.nesterov};
  DispatchType(options.round_to, [&](auto element) {
    ForEachElement(count, SgdBody<decltype(element)>{step, parameters, velocities, gradients});
  });
}

struct SquareRoot {
  float operator()(float x) const { return __builtin_sqrtf(x); }
  Vector operator()(Vector x) const {
#if defined(__AVX512F__)
    return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
    return _mm256_sqrt_ps(x);
#elif defined(__SSE2__)
    return _mm_sqrt_ps(x);
#else
    for (int lane = 0; lane < kLanes; ++lane) x[lane] = __builtin_sqrtf(x[lane]);
    return x;
#endif
  }
};

template <typename Storage>
struct AdamWBody {
  const AdamWFunctor<float>& step;
  float* parameters;
  float* exp_avg;
  float* exp_avg_sq;
  const float* gradients;
  template <typename T>
  void Run(size_t i) const {
    const auto splat = [](float value) { return Element<T>::Splat(value); };
    const AdamWFunctor<T> splatted{
        splat(step.gradient_scale), splat(step.decay),   splat(step.beta1),
        splat(step.one_less_beta1), splat(step.beta2),   splat(step.one_less_beta2),
        splat(step.root_scale),     splat(step.epsilon), splat(step.step_size)};
    T parameter = Element<T>::Load(parameters + i);
    T average = Element<T>::Load(exp_avg + i);
    T average_square = Element<T>::Load(exp_avg_sq + i);
    splatted(parameter, average, average_square, Element<T>::Load(gradients + i), SquareRoot());
    Element<T>::Store(parameters + i, Rounded<Storage>(parameter));
    Element<T>::Store(exp_avg + i, Rounded<Storage>(average));
    Element<T>::Store(exp_avg_sq + i, Rounded<Storage>(average_square));
  }
};

inline void AdamWStep(const AdamWOptions& options, const UpdateScalars* scalars, float* parameters,
                      float* exp_avg, float* exp_avg_sq, const float* gradients, size_t count) {
  if (scalars->skip != 0) return;
  // Computed in double and rounded once: the relative error of 1 - 0.999f is 1e-5.
  const AdamWFunctor<float> step{
      .gradient_scale = static_cast<float>(scalars->gradient_scale),
      .decay = static_cast<float>(1 - scalars->learning_rate * options.weight_decay),
      .beta1 = static_cast<float>(options.beta1),
      .one_less_beta1 = static_cast<float>(1 - options.beta1),
      .beta2 = static_cast<float>(options.beta2),
      .one_less_beta2 = static_cast<float>(1 - options.beta2),
      .root_scale = static_cast<float>(scalars->root_scale),
      .epsilon = static_cast<float>(options.epsilon),
      .step_size = static_cast<float>(scalars->step_size),
  };
  DispatchType(options.round_to, [&](auto element) {
    ForEachElement(count,
                   AdamWBody<decltype(element)>{step, parameters, exp_avg, exp_avg_sq, gradients});
  });
}

// Sum j of 32 adds the elements whose index is j modulo 32, whatever the vector size; the square of
// a float is exact in double, so that fused multiply-add gives the same result, too.
inline void SumOfSquares(const float* x, size_t count, double* sum) {
  typedef double DoubleVector __attribute__((vector_size(kLanes * sizeof(double))));
  constexpr size_t kSums = 32;
  constexpr size_t kVectors = kSums / kLanes;
  DoubleVector vectors[kVectors] = {};
  size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (size_t v = 0; v < kVectors; ++v) {
      const DoubleVector value =
          __builtin_convertvector(Element<Vector>::Load(x + i + v * kLanes), DoubleVector);
      vectors[v] += value * value;
    }
  }
  double sums[kSums];
  for (size_t j = 0; j < kSums; ++j) sums[j] = vectors[j / kLanes][j % kLanes];
  for (size_t j = 0; i < count; ++i, ++j) {
    sums[j] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  for (size_t half = kSums / 2; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  *sum = sums[0];
}

struct LerpBody {
  float weight;
  const float* x;
  float* y;
  template <typename T>
  void Run(size_t i) const {
    const T old = Element<T>::Load(y + i);
    Element<T>::Store(y + i, old + Element<T>::Splat(weight) * (Element<T>::Load(x + i) - old));
  }
};

inline void Lerp(const UpdateScalars* scalars, const float* x, float* y, size_t count) {
  if (scalars->skip != 0) return;
  if (scalars->average_weight == 1) {
    __builtin_memcpy(y, x, count * sizeof(float));
  } else {
    ForEachElement(count, LerpBody{scalars->average_weight, x, y});
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_OPTIMIZER_OPTIMIZER_BODY_H_
