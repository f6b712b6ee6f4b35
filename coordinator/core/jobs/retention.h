// Decides how long finished jobs are kept, and deletes them: the oldest first, a few records at a
// time.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_RETENTION_H_
#define MUSTER_COORDINATOR_CORE_JOBS_RETENTION_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time.h"
#include "coordinator/store/store.h"

namespace muster::core {

class Retention {
 public:
  Retention(size_t keep_jobs, absl::Duration keep_jobs_for)
      : keep_jobs_(keep_jobs), keep_jobs_for_(keep_jobs_for) {}

  void AddFinished(SteadyTime finish_time, const JobId& job, const std::string& owner) {
    finished_.emplace(finish_time, job);
    by_owner_[owner].emplace(finish_time, job);
  }
  void RemoveFinished(SteadyTime finish_time, const JobId& job, const std::string& owner) {
    finished_.erase({finish_time, job});
    const auto owned = by_owner_.find(owner);
    owned->second.erase({finish_time, job});
    if (owned->second.empty()) by_owner_.erase(owned);
  }
  bool HasFinished() const { return !finished_.empty(); }
  const JobId& OldestFinished() const { return finished_.begin()->second; }
  // The owner's oldest finished job; null when there is none.
  const JobId* OldestFinishedOf(const std::string& owner) const {
    const auto owned = by_owner_.find(owner);
    return owned == by_owner_.end() ? nullptr : &owned->second.begin()->second;
  }
  // The time at which the oldest finished job may be deleted; infinite when there is none.
  SteadyTime NextDue() const;

  // Registers the keys of a deleted job that are still in the store, the job's own first.
  void AddForgotten(const JobId& job, std::vector<std::string> keys) {
    forgotten_[job] = std::move(keys);
  }
  bool HasForgotten() const { return !forgotten_.empty(); }
  bool IsForgotten(const JobId& job) const { return forgotten_.count(job) != 0; }
  // Moves up to `limit` keys of one deleted job into `writes`, as deletions; a job's own key is
  // deleted last. Returns their number.
  size_t TakeDeletions(size_t limit, std::vector<store::Mutation>& writes);

 private:
  const size_t keep_jobs_;
  const absl::Duration keep_jobs_for_;
  using Finished = std::set<std::pair<SteadyTime, JobId>>;
  Finished finished_;
  std::map<std::string, Finished> by_owner_;
  std::map<JobId, std::vector<std::string>> forgotten_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_RETENTION_H_
