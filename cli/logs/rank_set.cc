#include "cli/logs/rank_set.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/limits.h"

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

}  // namespace muster::cli
