#include "coordinator/core/jobs/retention.h"

#include <algorithm>
#include <optional>

namespace muster::core {
namespace {

// Clients that wait for a job can still read how it ended, even after a lost connection.
constexpr absl::Duration kKeptAtLeast = absl::Minutes(1);

}  // namespace

SteadyTime Retention::NextDue() const {
  if (finished_.empty()) return SteadyTime::Infinite();
  const bool beyond = finished_.size() > keep_jobs_;
  const absl::Duration kept = beyond ? absl::ZeroDuration() : keep_jobs_for_;
  return finished_.begin()->first + std::max(kept, kKeptAtLeast);
}

size_t Retention::TakeDeletions(size_t limit, std::vector<store::Mutation>& writes) {
  if (forgotten_.empty()) return 0;
  std::vector<std::string>& keys = forgotten_.begin()->second;
  size_t taken = 0;
  for (; taken < limit && !keys.empty(); ++taken) {
    writes.push_back({std::move(keys.back()), std::nullopt});
    keys.pop_back();
  }
  if (keys.empty()) forgotten_.erase(forgotten_.begin());
  return taken;
}

}  // namespace muster::core
