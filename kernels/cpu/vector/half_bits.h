// Conversion between float and bfloat16 or float16 by bit operations, for instruction sets without
// conversion instructions. Compiled once per instruction set, like kernels/functors.h.
#ifndef MUSTER_KERNELS_CPU_VECTOR_HALF_BITS_H_
#define MUSTER_KERNELS_CPU_VECTOR_HALF_BITS_H_

#include <cstdint>

#ifndef MUSTER_INSTRUCTION_SET
#error "define MUSTER_INSTRUCTION_SET before including kernels/cpu/vector/half_bits.h"
#endif

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Float is float or a vector of floats; Word is uint32_t or a vector of as many. The low half of a
// word is the 16-bit number, the high half zero.

template <typename Float, typename Word>
inline Float FromBfloat16Bits(Word bits) {
  return __builtin_bit_cast(Float, bits << 16);
}

template <typename Float, typename Word>
inline Word ToBfloat16Bits(Float value) {
  const auto bits = __builtin_bit_cast(Word, value);
  const Word nearest_even = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const Word quiet_nan = bits >> 16 | 0x40;
  return value != value ? quiet_nan : nearest_even;
}

template <typename Float, typename Word>
inline Float FromFloat16Bits(Word half) {
  const Word magnitude = half & 0x7fff;
  // Treats the exponent as 8 bits wide; for a subnormal, the implicit 2^-14 is subtracted again.
  const Word rebiased = (magnitude << 13) + ((127 - 15) << 23);
  const auto smallest_normal = __builtin_bit_cast(Float, Word{} + ((127 - 14) << 23));
  const Float with_one = __builtin_bit_cast(Float, rebiased + (1 << 23));
  const Word subnormal = __builtin_bit_cast(Word, with_one - smallest_normal);
  const Word quiet = magnitude > 0x7c00 ? Word{} + 0x400000 : Word{};
  const Word special = (magnitude << 13) | 0x7f800000 | quiet;
  Word bits = magnitude < 0x400 ? subnormal : rebiased;
  bits = magnitude >= 0x7c00 ? special : bits;
  return __builtin_bit_cast(Float, bits | (half & 0x8000) << 16);
}

template <typename Float, typename Word>
inline Word ToFloat16Bits(Float value) {
  const auto bits = __builtin_bit_cast(Word, value);
  const Word magnitude = bits & 0x7fffffff;
  const Word quiet_nan = (magnitude >> 13 & 0x3ff) | 0x7e00;
  // Below 2^-14, adding 0.5 shifts the multiples of 2^-24 to the end.
  const Word subnormal =
      __builtin_bit_cast(Word, __builtin_bit_cast(Float, magnitude) + 0.5f) - 0x3f000000;
  const Word rebiased = magnitude - ((127 - 15) << 23);
  const Word nearest_even = (rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13;
  Word half = magnitude < 0x38800000 ? subnormal : nearest_even;
  half = magnitude >= 0x47800000 ? Word{} + 0x7c00 : half;  // 2^16 and above
  half = magnitude > 0x7f800000 ? quiet_nan : half;
  return half | (bits >> 16 & 0x8000);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_VECTOR_HALF_BITS_H_
