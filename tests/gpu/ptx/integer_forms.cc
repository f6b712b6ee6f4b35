// Integer and bit operations.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tests/gpu/ptx/form.h"

namespace muster::ptx {
namespace {

template <typename T>
using WideOf =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>;
template <typename T>
using DoubleWidth = std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>;

// Arithmetic wraps around. It is done in 64 unsigned bits, because overflow of narrower types,
// which C++ promotes to int, would be undefined.
struct Add {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};
struct Subtract {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  }
};
struct MultiplyLow {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
struct MultiplyHigh {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(DoubleWidth<T>{a} * DoubleWidth<T>{b} >> kBits<T>);
  }
};
struct MultiplyWide {
  template <typename T>
  static WideOf<T> Of(T a, T b) {
    return WideOf<T>{a} * WideOf<T>{b};
  }
};
struct MultiplyAddLow {
  template <typename T>
  static T Of(T a, T b, T c) {
    return Add::Of<T>(MultiplyLow::Of<T>(a, b), c);
  }
};
struct MultiplyAddHigh {
  template <typename T>
  static T Of(T a, T b, T c) {
    return Add::Of<T>(MultiplyHigh::Of<T>(a, b), c);
  }
};
struct MultiplyAddWide {
  template <typename T>
  static WideOf<T> Of(T a, T b, WideOf<T> c) {
    return Add::Of<WideOf<T>>(MultiplyWide::Of<T>(a, b), c);
  }
};

// Division by zero gives all ones, as on GPUs; the remainder is then the dividend.
struct Divide {
  template <typename T>
  static T Of(T a, T b) {
    if (b == 0) return static_cast<T>(~uint64_t{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return Subtract::Of<T>(0, a);
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <typename T>
  static T Of(T a, T b) {
    if (b == 0) return a;
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};

struct Negate {
  template <typename T>
  static T Of(T a) {
    return Subtract::Of<T>(0, a);
  }
};
struct Absolute {
  template <typename T>
  static T Of(T a) {
    return a < 0 ? Negate::Of<T>(a) : a;
  }
};
struct Minimum {
  template <typename T>
  static T Of(T a, T b) {
    return std::min(a, b);
  }
};
struct Maximum {
  template <typename T>
  static T Of(T a, T b) {
    return std::max(a, b);
  }
};

struct And {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct ExclusiveOr {
  template <typename T>
  static T Of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <typename T>
  static T Of(T a) {
    if constexpr (std::is_same_v<T, bool>) {
      return !a;
    } else {
      return static_cast<T>(~a);
    }
  }
};

// Shifts by the width or more give zero or, for right shifts of negative values, all ones.
struct ShiftLeft {
  template <typename T>
  static T Of(T a, uint32_t by) {
    return by >= kBits<T> ? T{0} : static_cast<T>(static_cast<uint64_t>(a) << by);
  }
};
struct ShiftRight {
  template <typename T>
  static T Of(T a, uint32_t by) {
    return static_cast<T>(a >> std::min<uint32_t>(by, kBits<T> - 1) >> (by >= kBits<T> ? 1 : 0));
  }
};

struct Move {
  template <typename T>
  static T Of(T a) {
    return a;
  }
};
struct Select {
  template <typename T>
  static T Of(T a, T b, bool first) {
    return first ? a : b;
  }
};

struct PopulationCount {
  template <typename T>
  static uint32_t Of(T a) {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct CountLeadingZeros {
  template <typename T>
  static uint32_t Of(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct ReverseBits {
  template <typename T>
  static T Of(T a) {
    T reversed = 0;
    for (int i = 0; i < kBits<T>; ++i) reversed = static_cast<T>(reversed << 1 | (a >> i & 1));
    return reversed;
  }
};
// b with the lowest bits of a at a position; bits beyond the width are dropped.
struct InsertField {
  template <typename T>
  static T Of(T a, T b, uint32_t position, uint32_t length) {
    position &= 0xff;
    length &= 0xff;
    const T ones = static_cast<T>(ShiftLeft::Of<T>(1, length) - 1);
    const T mask = ShiftLeft::Of<T>(ones, position);
    return static_cast<T>((b & ~mask) | (ShiftLeft::Of<T>(a, position) & mask));
  }
};
struct ExtractField {
  template <typename T>
  static T Of(T a, uint32_t position, uint32_t length) {
    using U = std::make_unsigned_t<T>;
    position &= 0xff;
    length &= 0xff;
    const uint32_t sign_at = std::min<uint32_t>(position + length - 1, kBits<T> - 1);
    const bool fill = std::is_signed_v<T> && length > 0 && (static_cast<U>(a) >> sign_at & 1) != 0;
    U field = ShiftRight::Of<U>(static_cast<U>(a), position);
    if (length >= kBits<T>) length = kBits<T>;
    const U mask = ShiftLeft::Of<U>(static_cast<U>(~U{0}), length);
    // Bits beyond the operand's end are copies of its sign.
    const U beyond =
        ShiftLeft::Of<U>(static_cast<U>(~U{0}), position >= kBits<T> ? 0u : kBits<T> - position);
    if (fill) field |= beyond;
    return static_cast<T>(fill ? (field | mask) : (field & ~mask));
  }
};

// Each of the selector's four low nibbles chooses a byte of b:a; its high bit replicates the sign.
uint32_t Permute(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t nibble = selector >> 4 * i & 0xf;
    uint32_t byte = static_cast<uint32_t>(bytes >> 8 * (nibble & 7)) & 0xff;
    if ((nibble & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
    result |= byte << 8 * i;
  }
  return result;
}

// Bit i of the table is the result for the inputs whose bits form i.
uint32_t Lookup3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t result = 0;
  for (int i = 0; i < 8; ++i) {
    if ((table >> i & 1) == 0) continue;
    result |= ((i & 4) != 0 ? a : ~a) & ((i & 2) != 0 ? b : ~b) & ((i & 1) != 0 ? c : ~c);
  }
  return result;
}

uint32_t FunnelLeftWrap(uint32_t low, uint32_t high, uint32_t by) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) << (by & 31) >> 32);
}
uint32_t FunnelRightWrap(uint32_t low, uint32_t high, uint32_t by) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (by & 31));
}

template <typename Operation>
void AddAll(FormTable& forms, absl::string_view name) {
  AddForms<Operation, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t>(forms, name);
}

}  // namespace

void AddIntegerForms(FormTable& forms) {
  AddAll<Add>(forms, "add");
  AddAll<Subtract>(forms, "sub");
  AddAll<MultiplyLow>(forms, "mul.lo");
  AddAll<MultiplyHigh>(forms, "mul.hi");
  AddAll<MultiplyAddLow>(forms, "mad.lo");
  AddAll<MultiplyAddHigh>(forms, "mad.hi");
  AddForms<MultiplyWide, int16_t, uint16_t, int32_t, uint32_t>(forms, "mul.wide");
  AddForms<MultiplyAddWide, int16_t, uint16_t, int32_t, uint32_t>(forms, "mad.wide");
  AddAll<Divide>(forms, "div");
  AddAll<Remainder>(forms, "rem");
  AddForms<Negate, int16_t, int32_t, int64_t>(forms, "neg");
  AddForms<Absolute, int16_t, int32_t, int64_t>(forms, "abs");
  AddAll<Minimum>(forms, "min");
  AddAll<Maximum>(forms, "max");
  AddBitForms<And, uint16_t, uint32_t, uint64_t>(forms, "and");
  AddBitForms<Or, uint16_t, uint32_t, uint64_t>(forms, "or");
  AddBitForms<ExclusiveOr, uint16_t, uint32_t, uint64_t>(forms, "xor");
  AddBitForms<Not, uint16_t, uint32_t, uint64_t>(forms, "not");
  AddForms<And, bool>(forms, "and");
  AddForms<Or, bool>(forms, "or");
  AddForms<ExclusiveOr, bool>(forms, "xor");
  AddForms<Not, bool>(forms, "not");
  AddBitForms<ShiftLeft, uint16_t, uint32_t, uint64_t>(forms, "shl");
  AddBitForms<ShiftRight, uint16_t, uint32_t, uint64_t>(forms, "shr");
  AddAll<ShiftRight>(forms, "shr");
  AddAll<Move>(forms, "mov");
  AddForms<Move, float, double, bool>(forms, "mov");
  AddBitForms<Move, uint16_t, uint32_t, uint64_t>(forms, "mov");
  AddAll<Select>(forms, "selp");
  AddForms<Select, float, double>(forms, "selp");
  AddBitForms<Select, uint16_t, uint32_t, uint64_t>(forms, "selp");
  AddBitForms<PopulationCount, uint32_t, uint64_t>(forms, "popc");
  AddBitForms<CountLeadingZeros, uint32_t, uint64_t>(forms, "clz");
  AddBitForms<ReverseBits, uint32_t, uint64_t>(forms, "brev");
  AddForms<ExtractField, int32_t, uint32_t, int64_t, uint64_t>(forms, "bfe");
  AddBitForms<InsertField, uint32_t, uint64_t>(forms, "bfi");
  forms["prmt.b32"] = FormOf<&Permute>();
  forms["lop3.b32"] = FormOf<&Lookup3>();
  forms["shf.l.wrap.b32"] = FormOf<&FunnelLeftWrap>();
  forms["shf.r.wrap.b32"] = FormOf<&FunnelRightWrap>();
}

}  // namespace muster::ptx
