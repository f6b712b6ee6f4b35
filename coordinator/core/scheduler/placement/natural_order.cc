#include "coordinator/core/scheduler/placement/natural_order.h"

#include "absl/strings/ascii.h"

namespace muster::core {
namespace {

// Removes the leading run of digits (or of non-digits) from `text` and returns it.
absl::string_view TakeRun(absl::string_view& text) {
  const bool digits = absl::ascii_isdigit(static_cast<unsigned char>(text.front()));
  size_t length = 1;
  while (length < text.size() &&
         absl::ascii_isdigit(static_cast<unsigned char>(text[length])) == digits) {
    ++length;
  }
  const absl::string_view run = text.substr(0, length);
  text.remove_prefix(length);
  return run;
}

absl::string_view WithoutZeros(absl::string_view digits) {
  const size_t first = digits.find_first_not_of('0');
  return first == absl::string_view::npos ? absl::string_view() : digits.substr(first);
}

bool IsNumber(absl::string_view run) {
  return absl::ascii_isdigit(static_cast<unsigned char>(run.front()));
}

}  // namespace

bool NaturalLess(absl::string_view a, absl::string_view b) {
  const absl::string_view whole_a = a;
  const absl::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    const absl::string_view run_a = TakeRun(a);
    const absl::string_view run_b = TakeRun(b);
    if (IsNumber(run_a) && IsNumber(run_b)) {
      const absl::string_view digits_a = WithoutZeros(run_a);
      const absl::string_view digits_b = WithoutZeros(run_b);
      if (digits_a.size() != digits_b.size()) return digits_a.size() < digits_b.size();
      if (digits_a != digits_b) return digits_a < digits_b;
    } else if (run_a != run_b) {
      return run_a < run_b;
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // equal except for leading zeros
}

}  // namespace muster::core
