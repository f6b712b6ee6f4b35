// Casts and scaled copies; see kernels/cast.h and kernels/activation.h. Compiled once per
// instruction set.
#ifndef MUSTER_KERNELS_CPU_VECTOR_CAST_BODY_H_
#define MUSTER_KERNELS_CPU_VECTOR_CAST_BODY_H_

#include <cstddef>

#include "kernels/cast.h"
#include "kernels/cpu/vector/vector.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

template <typename From, typename To>
struct CastBody {
  float scale;
  const From* x;
  To* y;
  template <typename T>
  void Run(size_t i) const {
    Element<T>::Store(y + i, Element<T>::Splat(scale) * Element<T>::Load(x + i));
  }
};

inline void Cast(DataType from, const void* x, float scale, DataType to, void* y, size_t count) {
  DispatchType(from, [&](auto from_element) {
    using From = decltype(from_element);
    DispatchType(to, [&](auto to_element) {
      using To = decltype(to_element);
      ForEachElement(count,
                     CastBody<From, To>{scale, static_cast<const From*>(x), static_cast<To*>(y)});
    });
  });
}

inline void ScaledCopy(DataType type, size_t count, const float* scale, const void* x, void* y) {
  if (*scale != 0) return Cast(type, x, *scale, type, y, count);
  DispatchType(type, [&](auto element) { __builtin_memset(y, 0, count * sizeof(element)); });
}

// Infinity and NaN minus themselves are NaN, which propagates through sums.
template <typename Storage>
inline bool AllFiniteOf(const Storage* x, size_t count) {
  constexpr size_t kBlock = 4096;  // elements between checks of the sum
  size_t i = 0;
  while (i + 4 * kLanes <= count) {
    const size_t end = i + kBlock < count ? i + kBlock : count;
    Vector sums[4] = {};
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      for (int k = 0; k < 4; ++k) {
        const Vector value = Element<Vector>::Load(x + i + k * kLanes);
        sums[k] = sums[k] + (value - value);
      }
    }
    const Vector sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int lane = 0; lane < kLanes; ++lane) {
      if (sum[lane] != 0) return false;
    }
  }
  for (; i < count; ++i) {
    const float value = Element<float>::Load(x + i);
    if (value - value != 0) return false;
  }
  return true;
}

inline void AllFinite(DataType type, const void* x, size_t count, bool* finite) {
  DispatchType(type, [&](auto element) {
    *finite = AllFiniteOf(static_cast<const decltype(element)*>(x), count);
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_VECTOR_CAST_BODY_H_
