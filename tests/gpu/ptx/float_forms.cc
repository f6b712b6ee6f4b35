// Floating-point arithmetic. Results are those of the PTX ISA to the bit, except for approximate
// instructions, which are rounded correctly here.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tests/gpu/ptx/form.h"

namespace muster::ptx {
namespace {

// float32 operations return one NaN only.
const float kCanonicalNan = std::bit_cast<float>(0x7fffffffu);

float Canonical(float value) { return value != value ? kCanonicalNan : value; }
double Canonical(double value) { return value; }

template <typename T>
T Flush(T value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(T{0}, value) : value;
}

struct Add {
  template <typename T>
  static T Of(T a, T b) {
    return Canonical(a + b);
  }
};
struct Subtract {
  template <typename T>
  static T Of(T a, T b) {
    return Canonical(a - b);
  }
};
struct Multiply {
  template <typename T>
  static T Of(T a, T b) {
    return Canonical(a * b);
  }
};
struct Divide {
  template <typename T>
  static T Of(T a, T b) {
    return Canonical(a / b);
  }
};
struct FusedMultiplyAdd {
  template <typename T>
  static T Of(T a, T b, T c) {
    return Canonical(std::fma(a, b, c));
  }
};
struct SquareRoot {
  template <typename T>
  static T Of(T a) {
    return Canonical(std::sqrt(a));
  }
};
struct Reciprocal {
  template <typename T>
  static T Of(T a) {
    return Canonical(1 / a);
  }
};
struct Negate {
  template <typename T>
  static T Of(T a) {
    return -a;
  }
};
struct Absolute {
  template <typename T>
  static T Of(T a) {
    return std::fabs(a);
  }
};
// A NaN operand is ignored; -0 is less than +0.
struct Minimum {
  template <typename T>
  static T Of(T a, T b) {
    if (a != a) return Canonical(b);
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? a : b;
    return a < b ? a : b;
  }
};
struct Maximum {
  template <typename T>
  static T Of(T a, T b) {
    if (a != a) return Canonical(b);
    if (b != b) return a;
    if (a == b) return std::signbit(a) ? b : a;
    return a > b ? a : b;
  }
};
struct CopySign {
  template <typename T>
  static T Of(T sign, T magnitude) {
    return std::copysign(magnitude, sign);
  }
};

// float32 operations whose subnormal operands and results become zero.
struct FlushedAdd {
  template <typename T>
  static T Of(T a, T b) {
    return Flush(Add::Of(Flush(a), Flush(b)));
  }
};
struct FlushedSubtract {
  template <typename T>
  static T Of(T a, T b) {
    return Flush(Subtract::Of(Flush(a), Flush(b)));
  }
};
struct FlushedMultiply {
  template <typename T>
  static T Of(T a, T b) {
    return Flush(Multiply::Of(Flush(a), Flush(b)));
  }
};
struct FlushedFusedMultiplyAdd {
  template <typename T>
  static T Of(T a, T b, T c) {
    return Flush(FusedMultiplyAdd::Of(Flush(a), Flush(b), Flush(c)));
  }
};

enum class Direction { kDown, kUp, kZero };

// Rounds the exact sum of a product and a float32 value in a direction. The product of two float32
// values is exact in double.
template <Direction kDirection>
float RoundSum(double product, double addend) {
  const double sum = product + addend;
  const float nearest = static_cast<float>(sum);
  if (!std::isfinite(sum)) return Canonical(nearest);
  if (sum == 0) {
    if (std::signbit(product) == std::signbit(addend)) return nearest;
    return kDirection == Direction::kDown ? -0.0f : 0.0f;
  }
  // The rounding error of the sum.
  const double part = sum - product;
  const double error = (product - (sum - part)) + (addend - part);
  const bool above = nearest > sum || (nearest == sum && error < 0);
  const bool below = nearest < sum || (nearest == sum && error > 0);
  const float infinity = std::numeric_limits<float>::infinity();
  const bool down = kDirection == Direction::kDown || (kDirection == Direction::kZero && sum > 0);
  if (down && above) return std::nextafter(nearest, -infinity);
  if (!down && below) return std::nextafter(nearest, infinity);
  return nearest;
}

template <Direction kDirection>
float AddDirected(float a, float b) {
  return RoundSum<kDirection>(a, b);
}
template <Direction kDirection>
float SubtractDirected(float a, float b) {
  return RoundSum<kDirection>(a, -double{b});
}
template <Direction kDirection>
float MultiplyDirected(float a, float b) {
  const double product = double{a} * double{b};
  return RoundSum<kDirection>(product, std::copysign(0.0, product));
}
template <Direction kDirection>
float FusedDirected(float a, float b, float c) {
  return RoundSum<kDirection>(double{a} * double{b}, c);
}

template <Direction kDirection>
void AddDirectedForms(FormTable& forms, absl::string_view mode) {
  forms[absl::StrCat("add.", mode, ".f32")] = FormOf<&AddDirected<kDirection>>();
  forms[absl::StrCat("sub.", mode, ".f32")] = FormOf<&SubtractDirected<kDirection>>();
  forms[absl::StrCat("mul.", mode, ".f32")] = FormOf<&MultiplyDirected<kDirection>>();
  forms[absl::StrCat("fma.", mode, ".f32")] = FormOf<&FusedDirected<kDirection>>();
}

// Approximate instructions: computed in double and rounded to float32.
template <double (*kFunction)(double)>
float Approximate(float a) {
  return Canonical(static_cast<float>(kFunction(a)));
}
template <double (*kFunction)(double)>
float ApproximateFlushed(float a) {
  return Flush(Approximate<kFunction>(Flush(a)));
}
double ReciprocalSquareRoot(double a) { return 1 / std::sqrt(a); }
double ReciprocalOf(double a) { return 1 / a; }

float DivideFlushed(float a, float b) { return Flush(Canonical(Flush(a) / Flush(b))); }

template <double (*kFunction)(double)>
void AddApproximation(FormTable& forms, absl::string_view name) {
  forms[absl::StrCat(name, ".approx.f32")] = FormOf<&Approximate<kFunction>>();
  forms[absl::StrCat(name, ".approx.ftz.f32")] = FormOf<&ApproximateFlushed<kFunction>>();
}

// The ISA defines operand and result by their upper 32 bits; the lower ones are zero.
double ReciprocalOfUpperHalf(double a) {
  constexpr uint64_t kUpper = ~uint64_t{0} << 32;
  const double operand = Flush(std::bit_cast<double>(std::bit_cast<uint64_t>(a) & kUpper));
  const double result = Flush(1 / operand);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(result) & kUpper);
}

template <typename... T>
void AddRounded(FormTable& forms) {
  for (const absl::string_view mode : {"", ".rn"}) {
    AddForms<Add, T...>(forms, absl::StrCat("add", mode));
    AddForms<Subtract, T...>(forms, absl::StrCat("sub", mode));
    AddForms<Multiply, T...>(forms, absl::StrCat("mul", mode));
  }
  AddForms<FusedMultiplyAdd, T...>(forms, "fma.rn");
  AddForms<Divide, T...>(forms, "div.rn");
  AddForms<SquareRoot, T...>(forms, "sqrt.rn");
  AddForms<Reciprocal, T...>(forms, "rcp.rn");
  AddForms<Negate, T...>(forms, "neg");
  AddForms<Absolute, T...>(forms, "abs");
  AddForms<Minimum, T...>(forms, "min");
  AddForms<Maximum, T...>(forms, "max");
  AddForms<CopySign, T...>(forms, "copysign");
}

}  // namespace

void AddFloatForms(FormTable& forms) {
  AddRounded<float, double>(forms);
  for (const absl::string_view mode : {"", ".rn"}) {
    AddForms<FlushedAdd, float>(forms, absl::StrCat("add", mode, ".ftz"));
    AddForms<FlushedSubtract, float>(forms, absl::StrCat("sub", mode, ".ftz"));
    AddForms<FlushedMultiply, float>(forms, absl::StrCat("mul", mode, ".ftz"));
  }
  AddForms<FlushedFusedMultiplyAdd, float>(forms, "fma.rn.ftz");
  AddDirectedForms<Direction::kDown>(forms, "rm");
  AddDirectedForms<Direction::kUp>(forms, "rp");
  AddDirectedForms<Direction::kZero>(forms, "rz");
  AddApproximation<std::exp2>(forms, "ex2");
  AddApproximation<std::log2>(forms, "lg2");
  AddApproximation<std::sin>(forms, "sin");
  AddApproximation<std::cos>(forms, "cos");
  AddApproximation<std::sqrt>(forms, "sqrt");
  AddApproximation<ReciprocalSquareRoot>(forms, "rsqrt");
  AddApproximation<ReciprocalOf>(forms, "rcp");
  forms["tanh.approx.f32"] = FormOf<&Approximate<std::tanh>>();
  AddForms<Divide, float>(forms, "div.approx");
  AddForms<Divide, float>(forms, "div.full");
  forms["div.approx.ftz.f32"] = FormOf<&DivideFlushed>();
  forms["div.full.ftz.f32"] = FormOf<&DivideFlushed>();
  forms["rcp.approx.ftz.f64"] = FormOf<&ReciprocalOfUpperHalf>();
}

}  // namespace muster::ptx
