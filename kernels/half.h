// Conversion between float32 and bfloat16 or float16, rounding to nearest even, by integer
// operations: the same results on every CPU.
#ifndef MUSTER_KERNELS_HALF_H_
#define MUSTER_KERNELS_HALF_H_

#include <bit>
#include <cstdint>

#include "kernels/data_type.h"

namespace muster::kernels {

inline float FromBfloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const uint32_t quiet_nan = bits >> 16 | 0x40;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet_nan : rounded);
}

inline float FromFloat16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  if (magnitude >= 0x7c00) {  // infinity, or NaN made quiet as by the CPU's conversion
    const uint32_t quiet = magnitude > 0x7c00 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13 | quiet);
  }
  if (magnitude < 0x400) {  // subnormal: a multiple of 2^-24
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127 - 15) << 23)));
}

inline uint16_t ToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  }
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);  // 2^16 and above
  if (magnitude < 0x38800000) {  // below 2^-14: adding 0.5 shifts the units of 2^-24 to the end
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t rebiased = magnitude - ((127 - 15) << 23);
  return static_cast<uint16_t>(sign | ((rebiased + 0xfff + (rebiased >> 13 & 1)) >> 13));
}

// Element `index` of an array of a kernel type.
inline float LoadElement(DataType type, const void* array, int64_t index) {
  switch (type) {
    case DataType::kBfloat16:
      return FromBfloat16(static_cast<const Bfloat16*>(array)[index].bits);
    case DataType::kFloat16:
      return FromFloat16(static_cast<const Float16*>(array)[index].bits);
    default:  // kFloat32
      return static_cast<const float*>(array)[index];
  }
}

inline void StoreElement(DataType type, double value, void* array, int64_t index) {
  const auto rounded = static_cast<float>(value);
  switch (type) {
    case DataType::kBfloat16:
      static_cast<Bfloat16*>(array)[index].bits = ToBfloat16(rounded);
      return;
    case DataType::kFloat16:
      static_cast<Float16*>(array)[index].bits = ToFloat16(rounded);
      return;
    default:  // kFloat32
      static_cast<float*>(array)[index] = rounded;
      return;
  }
}

// Rounds to the nearest value of `type`.
inline float RoundTo(DataType type, double value) {
  const auto rounded = static_cast<float>(value);
  if (type == DataType::kBfloat16) return FromBfloat16(ToBfloat16(rounded));
  if (type == DataType::kFloat16) return FromFloat16(ToFloat16(rounded));
  return rounded;
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_HALF_H_
