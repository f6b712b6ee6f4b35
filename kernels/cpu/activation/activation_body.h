// Elementwise activations and sums; see kernels/activation.h. Compiled once per instruction set.
#ifndef MUSTER_KERNELS_CPU_ACTIVATION_ACTIVATION_BODY_H_
#define MUSTER_KERNELS_CPU_ACTIVATION_ACTIVATION_BODY_H_

#include <cstddef>

#include "kernels/activation.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/functors.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

template <Activation kActivation, typename T>
MUSTER_ALWAYS_INLINE T Activate(T x) {
  if constexpr (kActivation == Activation::kRelu) return ReluFunctor<T>()(x);
  if constexpr (kActivation == Activation::kRelu6) return Relu6Functor<T>()(x);
  return x;
}

// Gradient dy through the activation; y is its output or its input, which give the same mask.
template <Activation kActivation, typename T>
MUSTER_ALWAYS_INLINE T PassBack(T y, T dy) {
  if constexpr (kActivation == Activation::kRelu) return ReluBackwardFunctor<T>()(y, dy);
  if constexpr (kActivation == Activation::kRelu6) return Relu6BackwardFunctor<T>()(y, dy);
  return dy;
}

// Calls run.operator()<activation>().
template <typename Run>
MUSTER_ALWAYS_INLINE void DispatchActivation(Activation activation, const Run& run) {
  switch (activation) {
    case Activation::kNone:
      return run.template operator()<Activation::kNone>();
    case Activation::kRelu:
      return run.template operator()<Activation::kRelu>();
    case Activation::kRelu6:
      return run.template operator()<Activation::kRelu6>();
  }
}

template <Activation kActivation, typename Storage>
struct ActivationForwardBody {
  const Storage* x;
  Storage* y;
  template <typename T>
  void Run(size_t i) const {
    Element<T>::Store(y + i, Activate<kActivation>(Element<T>::Load(x + i)));
  }
};

template <Activation kActivation, typename Storage>
struct ActivationBackwardBody {
  const Storage* y;
  const Storage* dy;
  Storage* dx;
  template <typename T>
  void Run(size_t i) const {
    Element<T>::Store(dx + i,
                      PassBack<kActivation>(Element<T>::Load(y + i), Element<T>::Load(dy + i)));
  }
};

inline void ActivationForward(DataType type, Activation activation, size_t count, const void* x,
                              void* y) {
  DispatchType(type, [&](auto element) {
    using Storage = decltype(element);
    DispatchActivation(activation, [&]<Activation kActivation>() {
      ForEachElement(count, ActivationForwardBody<kActivation, Storage>{
                                static_cast<const Storage*>(x), static_cast<Storage*>(y)});
    });
  });
}

inline void ActivationBackward(DataType type, Activation activation, size_t count, const void* y,
                               const void* dy, void* dx) {
  DispatchType(type, [&](auto element) {
    using Storage = decltype(element);
    DispatchActivation(activation, [&]<Activation kActivation>() {
      ForEachElement(count, ActivationBackwardBody<kActivation, Storage>{
                                static_cast<const Storage*>(y), static_cast<const Storage*>(dy),
                                static_cast<Storage*>(dx)});
    });
  });
}

template <Activation kActivation, typename Storage>
struct AddBody {
  const Storage* a;
  float scale_a;
  const Storage* b;
  Storage* y;
  template <typename T>
  void Run(size_t i) const {
    const AffineFunctor<T> sum{Element<T>::Splat(scale_a), Element<T>::Load(b + i)};
    Element<T>::Store(y + i, Activate<kActivation>(sum(Element<T>::Load(a + i))));
  }
};

inline void AddForward(DataType type, size_t count, const void* a, const float* scale_a,
                       const void* b, Activation activation, void* y) {
  const float scale = scale_a != nullptr ? *scale_a : 1.0f;
  if (a == nullptr || scale == 0) return ActivationForward(type, activation, count, b, y);
  DispatchType(type, [&](auto element) {
    using Storage = decltype(element);
    DispatchActivation(activation, [&]<Activation kActivation>() {
      ForEachElement(count, AddBody<kActivation, Storage>{static_cast<const Storage*>(a), scale,
                                                          static_cast<const Storage*>(b),
                                                          static_cast<Storage*>(y)});
    });
  });
}

template <typename Storage>
struct AccumulateBody {
  const Storage* x;
  Storage* y;
  template <typename T>
  void Run(size_t i) const {
    Element<T>::Store(y + i, Element<T>::Load(y + i) + Element<T>::Load(x + i));
  }
};

inline void Accumulate(DataType type, size_t count, const void* x, void* y) {
  DispatchType(type, [&](auto element) {
    using Storage = decltype(element);
    ForEachElement(
        count, AccumulateBody<Storage>{static_cast<const Storage*>(x), static_cast<Storage*>(y)});
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_ACTIVATION_ACTIVATION_BODY_H_
