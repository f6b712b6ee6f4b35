// Comparisons.
#include <cstdint>
#include <type_traits>

#include "tests/gpu/ptx/form.h"

namespace muster::ptx {
namespace {

// Ordered comparisons: false if an operand is NaN.
struct Equal {
  template <typename T>
  static bool Of(T a, T b) {
    return a == b;
  }
};
struct NotEqual {
  template <typename T>
  static bool Of(T a, T b) {
    return a == a && b == b && a != b;
  }
};
struct Less {
  template <typename T>
  static bool Of(T a, T b) {
    return a < b;
  }
};
struct LessOrEqual {
  template <typename T>
  static bool Of(T a, T b) {
    return a <= b;
  }
};
struct Greater {
  template <typename T>
  static bool Of(T a, T b) {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <typename T>
  static bool Of(T a, T b) {
    return a >= b;
  }
};
// The negation of a comparison, which is true if an operand is NaN.
template <typename Ordered>
struct Unless {
  template <typename T>
  static bool Of(T a, T b) {
    return !Ordered::template Of<T>(a, b);
  }
};
struct AreNumbers {
  template <typename T>
  static bool Of(T a, T b) {
    return a == a && b == b;
  }
};

// A comparison combined with a predicate.
template <typename Comparison>
struct WithAnd {
  template <typename T>
  static bool Of(T a, T b, bool c) {
    return Comparison::template Of<T>(a, b) && c;
  }
};
template <typename Comparison>
struct WithOr {
  template <typename T>
  static bool Of(T a, T b, bool c) {
    return Comparison::template Of<T>(a, b) || c;
  }
};

template <typename Comparison, typename... T>
void AddComparison(FormTable& forms, absl::string_view name) {
  AddForms<Comparison, T...>(forms, absl::StrCat("setp.", name));
  AddForms<WithAnd<Comparison>, T...>(forms, absl::StrCat("setp.", name, ".and"));
  AddForms<WithOr<Comparison>, T...>(forms, absl::StrCat("setp.", name, ".or"));
}

template <typename Comparison>
void AddToNumbers(FormTable& forms, absl::string_view name) {
  AddComparison<Comparison, int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t, float, double>(
      forms, name);
}

}  // namespace

void AddComparisonForms(FormTable& forms) {
  AddToNumbers<Equal>(forms, "eq");
  AddToNumbers<NotEqual>(forms, "ne");
  AddToNumbers<Less>(forms, "lt");
  AddToNumbers<LessOrEqual>(forms, "le");
  AddToNumbers<Greater>(forms, "gt");
  AddToNumbers<GreaterOrEqual>(forms, "ge");
  AddBitForms<Equal, uint16_t, uint32_t, uint64_t>(forms, "setp.eq");
  AddBitForms<NotEqual, uint16_t, uint32_t, uint64_t>(forms, "setp.ne");
  AddComparison<Less, uint16_t, uint32_t, uint64_t>(forms, "lo");
  AddComparison<LessOrEqual, uint16_t, uint32_t, uint64_t>(forms, "ls");
  AddComparison<Greater, uint16_t, uint32_t, uint64_t>(forms, "hi");
  AddComparison<GreaterOrEqual, uint16_t, uint32_t, uint64_t>(forms, "hs");
  AddComparison<Unless<NotEqual>, float, double>(forms, "equ");
  AddComparison<Unless<Equal>, float, double>(forms, "neu");
  AddComparison<Unless<GreaterOrEqual>, float, double>(forms, "ltu");
  AddComparison<Unless<Greater>, float, double>(forms, "leu");
  AddComparison<Unless<LessOrEqual>, float, double>(forms, "gtu");
  AddComparison<Unless<Less>, float, double>(forms, "geu");
  AddComparison<AreNumbers, float, double>(forms, "num");
  AddComparison<Unless<AreNumbers>, float, double>(forms, "nan");
}

}  // namespace muster::ptx
