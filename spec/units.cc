#include "spec/units.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace muster::spec {
namespace {

struct Unit {
  absl::string_view name;
  uint64_t bytes;
};

constexpr Unit kUnits[] = {
    {"TiB", uint64_t{1} << 40},
    {"GiB", 1 << 30},
    {"MiB", 1 << 20},
    {"KiB", 1 << 10},
    {"T", uint64_t{1} << 40},
    {"G", 1 << 30},
    {"M", 1 << 20},
    {"K", 1 << 10},
    {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000},
    {"MB", 1'000'000},
    {"kB", 1'000},
    {"KB", 1'000},
    {"B", 1},
    {"", 1},
};

constexpr int64_t kMaxDurationSeconds = 315'576'000'000;

}  // namespace

absl::StatusOr<absl::Duration> ParseDuration(absl::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration)) {
    double number;
    if (absl::SimpleAtod(text, &number)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", text, "' needs a unit: '", text, "s' or '", text, "m'"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a duration such as 90s, 10m or 1.5h"));
  }
  if (duration < absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is negative"));
  }
  if (duration > absl::Seconds(kMaxDurationSeconds)) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' exceeds 10000 years"));
  }
  return duration;
}

std::string DurationText(absl::Duration duration) {
  return duration == absl::ZeroDuration() ? "0s" : absl::FormatDuration(duration);
}

absl::StatusOr<uint64_t> ParseSize(absl::string_view text) {
  const absl::Status error = absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a size in bytes such as 25MiB, 100MB or 4096"));
  const size_t digits = text.find_first_not_of("0123456789.");
  const absl::string_view number_text = text.substr(0, digits);
  const absl::string_view unit_text = digits == absl::string_view::npos
                                          ? absl::string_view()
                                          : absl::StripLeadingAsciiWhitespace(text.substr(digits));
  for (const Unit& unit : kUnits) {
    if (unit.name != unit_text) continue;
    if (uint64_t whole; absl::SimpleAtoi(number_text, &whole)) {
      if (whole > UINT64_MAX / unit.bytes) return error;
      return whole * unit.bytes;
    }
    double number;
    if (!absl::SimpleAtod(number_text, &number)) return error;
    const double bytes = number * static_cast<double>(unit.bytes);
    if (!(bytes >= 0 && bytes < 0x1p53) || bytes != std::floor(bytes)) return error;
    return static_cast<uint64_t>(bytes);
  }
  return error;
}

std::string SizeText(uint64_t size_bytes) {
  for (const Unit& unit : kUnits) {
    const bool binary = unit.name.size() == 3;
    if (binary && size_bytes >= unit.bytes && size_bytes % unit.bytes == 0) {
      return absl::StrCat(size_bytes / unit.bytes, unit.name);
    }
  }
  return absl::StrCat(size_bytes);
}

}  // namespace muster::spec
