// Conversions between types (cvt).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/half.h"
#include "tests/gpu/ptx/form.h"

namespace muster::ptx {
namespace {

using kernels::Bfloat16;
using kernels::Float16;

template <typename To, typename From>
std::string ConversionOf(absl::string_view modifiers) {
  return absl::StrCat("cvt", modifiers, ".", std::string(TypeName<To>()), ".",
                      std::string(TypeName<From>()));
}

template <auto kFunction, typename To, typename From>
void AddConversion(FormTable& forms, absl::string_view modifiers) {
  Form form = FormOf<kFunction>();
  form.wide_registers = true;
  forms[ConversionOf<To, From>(modifiers)] = form;
}

// Integers are truncated or extended by the source's sign; integers become the nearest float.
template <typename To, typename From>
To Cast(From value) {
  return static_cast<To>(value);
}

// Rounding of a float to an integral value.
double ToNearest(double value) { return std::nearbyint(value); }
double ToZero(double value) { return std::trunc(value); }
double Down(double value) { return std::floor(value); }
double Up(double value) { return std::ceil(value); }

// The integer nearest to the rounded value. NaN gives zero, or only the highest bit if the source
// or destination has 64 bits.
template <typename To, typename From, double (*kRound)(double)>
To ToInteger(From value) {
  using Limits = std::numeric_limits<To>;
  if (value != value) {
    const bool zero = sizeof(From) < 8 && sizeof(To) < 8;
    return zero ? To{0} : static_cast<To>(uint64_t{1} << (kBits<To> - 1));
  }
  const double rounded = kRound(value);
  // max() + 1 is a power of two, which double represents exactly.
  if (rounded >= std::ldexp(1.0, kBits<To> - (std::is_signed_v<To> ? 1 : 0))) return Limits::max();
  if (rounded < static_cast<double>(Limits::min())) return Limits::min();
  return static_cast<To>(rounded);
}

template <typename T, double (*kRound)(double)>
T ToIntegral(T value) {
  return static_cast<T>(kRound(value));
}

template <typename From, double (*kRound)(double), typename... To>
void AddToInteger(FormTable& forms, absl::string_view mode) {
  (AddConversion<&ToInteger<To, From, kRound>, To, From>(forms, mode), ...);
}

template <double (*kRound)(double)>
void AddRounding(FormTable& forms, absl::string_view mode) {
  AddToInteger<float, kRound, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t,
               uint64_t>(forms, mode);
  AddToInteger<double, kRound, int8_t, uint8_t, int16_t, uint16_t, int32_t, uint32_t, int64_t,
               uint64_t>(forms, mode);
  AddConversion<&ToIntegral<float, kRound>, float, float>(forms, mode);
  AddConversion<&ToIntegral<double, kRound>, double, double>(forms, mode);
}

// Rounds to float32 in a direction.
float ToFloatDown(double value) {
  const float nearest = static_cast<float>(value);
  return nearest > value ? std::nextafter(nearest, -std::numeric_limits<float>::infinity())
                         : nearest;
}
float ToFloatUp(double value) {
  const float nearest = static_cast<float>(value);
  return nearest < value ? std::nextafter(nearest, std::numeric_limits<float>::infinity())
                         : nearest;
}
float ToFloatToZero(double value) { return value > 0 ? ToFloatDown(value) : ToFloatUp(value); }

template <typename T>
T Saturate(T value) {
  return value > 0 ? std::min(value, T{1}) : T{0};
}
float SaturateFromDouble(double value) { return Saturate(static_cast<float>(value)); }

// 16-bit floats. Their only NaN as a result is 0x7fff.
Float16 ToFloat16(float value) {
  return {value != value ? uint16_t{0x7fff} : kernels::ToFloat16(value)};
}
Bfloat16 ToBfloat16(float value) {
  return {value != value ? uint16_t{0x7fff} : kernels::ToBfloat16(value)};
}
float FromFloat16(Float16 value) { return kernels::FromFloat16(value.bits); }
float FromBfloat16(Bfloat16 value) { return kernels::FromBfloat16(value.bits); }
// The first operand becomes the upper half.
uint32_t ToFloat16Pair(float upper, float lower) {
  return static_cast<uint32_t>(ToFloat16(upper).bits) << 16 | ToFloat16(lower).bits;
}
uint32_t ToBfloat16Pair(float upper, float lower) {
  return static_cast<uint32_t>(ToBfloat16(upper).bits) << 16 | ToBfloat16(lower).bits;
}

template <typename From>
void AddFromInteger(FormTable& forms) {
  AddConversion<&Cast<int8_t, From>, int8_t, From>(forms, "");
  AddConversion<&Cast<uint8_t, From>, uint8_t, From>(forms, "");
  AddConversion<&Cast<int16_t, From>, int16_t, From>(forms, "");
  AddConversion<&Cast<uint16_t, From>, uint16_t, From>(forms, "");
  AddConversion<&Cast<int32_t, From>, int32_t, From>(forms, "");
  AddConversion<&Cast<uint32_t, From>, uint32_t, From>(forms, "");
  AddConversion<&Cast<int64_t, From>, int64_t, From>(forms, "");
  AddConversion<&Cast<uint64_t, From>, uint64_t, From>(forms, "");
  AddConversion<&Cast<float, From>, float, From>(forms, ".rn");
  AddConversion<&Cast<double, From>, double, From>(forms, ".rn");
}

}  // namespace

void AddConversionForms(FormTable& forms) {
  AddFromInteger<int8_t>(forms);
  AddFromInteger<uint8_t>(forms);
  AddFromInteger<int16_t>(forms);
  AddFromInteger<uint16_t>(forms);
  AddFromInteger<int32_t>(forms);
  AddFromInteger<uint32_t>(forms);
  AddFromInteger<int64_t>(forms);
  AddFromInteger<uint64_t>(forms);
  AddRounding<ToNearest>(forms, ".rni");
  AddRounding<ToZero>(forms, ".rzi");
  AddRounding<Down>(forms, ".rmi");
  AddRounding<Up>(forms, ".rpi");
  AddConversion<&Cast<double, float>, double, float>(forms, "");
  AddConversion<&Cast<float, double>, float, double>(forms, ".rn");
  AddConversion<&ToFloatDown, float, double>(forms, ".rm");
  AddConversion<&ToFloatUp, float, double>(forms, ".rp");
  AddConversion<&ToFloatToZero, float, double>(forms, ".rz");
  AddConversion<&Saturate<float>, float, float>(forms, ".sat");
  AddConversion<&Saturate<double>, double, double>(forms, ".sat");
  AddConversion<&SaturateFromDouble, float, double>(forms, ".rn.sat");
  AddConversion<&FromFloat16, float, Float16>(forms, "");
  AddConversion<&FromBfloat16, float, Bfloat16>(forms, "");
  AddConversion<&ToFloat16, Float16, float>(forms, ".rn");
  AddConversion<&ToBfloat16, Bfloat16, float>(forms, ".rn");
  forms["cvt.rn.f16x2.f32"] = FormOf<&ToFloat16Pair>();
  forms["cvt.rn.bf16x2.f32"] = FormOf<&ToBfloat16Pair>();
}

}  // namespace muster::ptx
