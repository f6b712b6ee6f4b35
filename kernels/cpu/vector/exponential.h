// The exponential function of vectors. Compiled once per instruction set.
#ifndef MUSTER_KERNELS_CPU_VECTOR_EXPONENTIAL_H_
#define MUSTER_KERNELS_CPU_VECTOR_EXPONENTIAL_H_

#include <cstdint>

#include "kernels/cpu/vector/vector.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// e^x for x up to 80, and 0 below -87: x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its Taylor
// series up to r^7, and 2^n by exponent bits. NaN stays NaN.
template <typename T>
inline T Exponential(T x) {
  constexpr float kSmallest = -87.0f;
  // Adding it to a small number leaves the integer part in the lowest bits.
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  const T clamped = x < kSmallest ? T{} + kSmallest : x;
  const T rounded = clamped * 1.44269504f + kRound;
  const T n = rounded - kRound;
  const T r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  T series = r * (1.0f / 5040) + 1.0f / 720;
  series = series * r + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const auto bits = __builtin_bit_cast(typename Element<T>::Word, rounded);
  const T power = __builtin_bit_cast(T, (bits + 127) << 23);
  return x < kSmallest ? T{} : series * power;
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_VECTOR_EXPONENTIAL_H_
