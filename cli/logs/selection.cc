#include "cli/logs/selection.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"
#include "spec/units.h"

namespace muster::cli {

absl::StatusOr<std::vector<uint32_t>> ParseRankSet(absl::string_view text) {
  std::set<uint32_t> ranks;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    const bool range = part.find('-') != absl::string_view::npos;
    uint32_t first, last;
    if (!absl::SimpleAtoi(ends.first, &first) ||
        !absl::SimpleAtoi(range ? ends.second : ends.first, &last) || last < first ||
        last >= limits::kRanksPerJob) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' is not a rank or a range of ranks such as 3-5"));
    }
    for (uint32_t rank = first; rank <= last; ++rank) ranks.insert(rank);
  }
  return std::vector<uint32_t>(ranks.begin(), ranks.end());
}

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
