#include "cli/logs/since.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "spec/units.h"

namespace muster::cli {

absl::StatusOr<absl::Time> ParseSince(absl::string_view text, absl::Time now) {
  absl::Time time;
  std::string error;
  if (absl::ParseTime(absl::RFC3339_full, text, &time, &error) && time > absl::InfinitePast() &&
      time < absl::InfiniteFuture()) {
    return time;
  }
  const absl::StatusOr<absl::Duration> age = spec::ParseDuration(text);
  if (age.ok()) return now - *age;
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is neither a duration such as 10m nor a time such as 2026-11-22T10:00:00Z"));
}

}  // namespace muster::cli
