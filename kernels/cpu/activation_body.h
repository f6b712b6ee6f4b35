// Activations and sums, element by element; see kernels/activation.h. Compiled once per instruction
// set.
#ifndef MUSTER_KERNELS_CPU_ACTIVATION_BODY_H_
#define MUSTER_KERNELS_CPU_ACTIVATION_BODY_H_

#include <cstddef>

#include "kernels/activation.h"
#include "kernels/cpu/vector.h"
#include "kernels/functors.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

template <Activation kActivation, typename T>
MUSTER_ALWAYS_INLINE T Activate(T x) {
  if constexpr (kActivation == Activation::kRelu) return ReluFunctor<T>()(x);
  if constexpr (kActivation == Activation::kRelu6) return Relu6Functor<T>()(x);
  return x;
}

// The gradient dy through the activation; y is its output or its input, which lie at a bound alike.
template <Activation kActivation, typename T>
MUSTER_ALWAYS_INLINE T PassBack(T y, T dy) {
  if constexpr (kActivation == Activation::kRelu) return ReluBackwardFunctor<T>()(y, dy);
  if constexpr (kActivation == Activation::kRelu6) return Relu6BackwardFunctor<T>()(y, dy);
  return dy;
}

template <Activation kActivation>
struct ActivationForwardBody {
  const float* x;
  float* y;
  template <typename T>
  void Run(size_t i) const {
    Element<T>::Store(y + i, Activate<kActivation>(Element<T>::Load(x + i)));
  }
};

template <Activation kActivation>
struct ActivationBackwardBody {
  const float* y;
  const float* dy;
  float* dx;
  template <typename T>
  void Run(size_t i) const {
    Element<T>::Store(dx + i,
                      PassBack<kActivation>(Element<T>::Load(y + i), Element<T>::Load(dy + i)));
  }
};

inline void ReluForward(size_t count, const float* x, float* y) {
  ForEachElement(count, ActivationForwardBody<Activation::kRelu>{x, y});
}

inline void ReluBackward(size_t count, const float* y, const float* dy, float* dx) {
  ForEachElement(count, ActivationBackwardBody<Activation::kRelu>{y, dy, dx});
}

inline void Relu6Forward(size_t count, const float* x, float* y) {
  ForEachElement(count, ActivationForwardBody<Activation::kRelu6>{x, y});
}

inline void Relu6Backward(size_t count, const float* y, const float* dy, float* dx) {
  ForEachElement(count, ActivationBackwardBody<Activation::kRelu6>{y, dy, dx});
}

template <Activation kActivation>
struct AddBody {
  const float* a;
  float scale_a;
  const float* b;
  float* y;
  template <typename T>
  void Run(size_t i) const {
    const AffineFunctor<T> sum{Element<T>::Splat(scale_a), Element<T>::Load(b + i)};
    Element<T>::Store(y + i, Activate<kActivation>(sum(Element<T>::Load(a + i))));
  }
};

template <Activation kActivation>
inline void Add(size_t count, const float* a, float scale_a, const float* b, float* y) {
  if (a == nullptr) {
    ForEachElement(count, ActivationForwardBody<kActivation>{b, y});
  } else {
    ForEachElement(count, AddBody<kActivation>{a, scale_a, b, y});
  }
}

inline void AddForward(size_t count, const float* a, float scale_a, const float* b,
                       Activation activation, float* y) {
  switch (activation) {
    case Activation::kNone:
      return Add<Activation::kNone>(count, a, scale_a, b, y);
    case Activation::kRelu:
      return Add<Activation::kRelu>(count, a, scale_a, b, y);
    case Activation::kRelu6:
      return Add<Activation::kRelu6>(count, a, scale_a, b, y);
  }
}

struct AccumulateBody {
  const float* x;
  float* y;
  template <typename T>
  void Run(size_t i) const {
    Element<T>::Store(y + i, Element<T>::Load(y + i) + Element<T>::Load(x + i));
  }
};

inline void Accumulate(size_t count, const float* x, float* y) {
  ForEachElement(count, AccumulateBody{x, y});
}

struct ScaledCopyBody {
  float scale;
  const float* x;
  float* y;
  template <typename T>
  void Run(size_t i) const {
    Element<T>::Store(y + i, Element<T>::Splat(scale) * Element<T>::Load(x + i));
  }
};

inline void ScaledCopy(size_t count, float scale, const float* x, float* y) {
  ForEachElement(count, ScaledCopyBody{scale, x, y});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_ACTIVATION_BODY_H_
