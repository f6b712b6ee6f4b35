#include "collectives/stalled_ranks.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/time/deadline.h"

namespace muster::collectives {
namespace {

// Maximum skew between the timeouts of ranks that wait for one another.
constexpr absl::Duration kSkew = absl::Milliseconds(500);

}  // namespace

std::vector<uint32_t> FindStalledRanks(const GroupOptions& options,
                                       const std::vector<uint32_t>& waiting_for) {
  const auto key = [&options](uint32_t job_rank) {
    return absl::StrCat("stalled/", options.id, "/", job_rank);
  };
  const uint32_t self = options.members[options.rank];
  options.store->Put(key(self), absl::StrJoin(waiting_for, ",")).IgnoreError();
  const Deadline deadline(kSkew);
  std::vector<uint32_t> stalled;
  std::set<uint32_t> seen = {self};
  std::vector<uint32_t> queue = waiting_for;
  while (!queue.empty()) {
    const uint32_t rank = queue.back();
    queue.pop_back();
    if (!seen.insert(rank).second) continue;
    const absl::StatusOr<std::string> list = options.store->Get(key(rank), deadline.left());
    if (!list.ok()) {
      stalled.push_back(rank);
      continue;
    }
    for (const absl::string_view text : absl::StrSplit(*list, ',')) {
      uint32_t next = 0;
      if (absl::SimpleAtoi(text, &next)) queue.push_back(next);
    }
  }
  std::sort(stalled.begin(), stalled.end());
  return stalled.empty() ? waiting_for : stalled;
}

}  // namespace muster::collectives
