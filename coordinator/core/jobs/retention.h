// How long finished jobs are kept, and how they are deleted: the oldest first, their records a few
// at a time.
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
#include "coordinator/store/store.h"

namespace muster::core {

class Retention {
 public:
  Retention(size_t keep_jobs, absl::Duration keep_jobs_for)
      : keep_jobs_(keep_jobs), keep_jobs_for_(keep_jobs_for) {}

  void AddFinished(absl::Time finish_time, const JobId& job) {
    finished_.emplace(finish_time, job);
  }
  void RemoveFinished(absl::Time finish_time, const JobId& job) {
    finished_.erase({finish_time, job});
  }
  bool HasFinished() const { return !finished_.empty(); }
  const JobId& OldestFinished() const { return finished_.begin()->second; }
  // When the job that finished first may be forgotten; infinite when there is none.
  absl::Time NextDue() const;

  // Keys of a forgotten job that are still in the store, the job's own first.
  void AddForgotten(const JobId& job, std::vector<std::string> keys) {
    forgotten_[job] = std::move(keys);
  }
  bool HasForgotten() const { return !forgotten_.empty(); }
  bool IsForgotten(const JobId& job) const { return forgotten_.count(job) != 0; }
  // Moves up to `limit` keys of one forgotten job into `writes`, as deletions; a job's own key
  // comes last. Returns how many.
  size_t TakeDeletions(size_t limit, std::vector<store::Mutation>& writes);

 private:
  const size_t keep_jobs_;
  const absl::Duration keep_jobs_for_;
  std::set<std::pair<absl::Time, JobId>> finished_;
  std::map<JobId, std::vector<std::string>> forgotten_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_RETENTION_H_
