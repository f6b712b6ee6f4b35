// Decides how long finished jobs are kept, and deletes them: the oldest first, a few records at a
// time. A job that is deleted early, to make room, leaves its idempotency key for as long as the
// job would have been kept, so that a repeated submission does not run again.
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

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/histories.h"
#include "coordinator/core/jobs/job_names.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/jobs/log_tails.h"
#include "coordinator/core/owners/memory_budget.h"
#include "coordinator/store/store.h"

namespace muster::core {

// The finished jobs in the order in which they are deleted, and the records left of deleted ones.
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
  // Keeps the idempotency key of a deleted job, and the record of the job itself.
  void KeepKey(SteadyTime finish_time, const JobId& job, OwnerAndKey key) {
    finished_.emplace(finish_time, job);
    kept_keys_.emplace(job, std::move(key));
  }
  // Removes and returns the key of a deleted job, which is the oldest.
  OwnerAndKey TakeOldestKey();
  // The oldest finished job, or deleted job whose key is kept. There must be one.
  const JobId& Oldest() const { return finished_.begin()->second; }
  // The time at which the oldest may be deleted; infinite when there is none.
  SteadyTime NextDue() const;
  // The oldest finished job, of one owner or of all, that may be deleted early; null when there is
  // none.
  const JobId* FindEvictable(const std::string& owner, SteadyTime now) const;
  const JobId* FindEvictable(SteadyTime now) const;
  // All of them, in no order.
  std::vector<JobId> Evictable(SteadyTime now) const;

  // Registers the keys of a deleted job that are still in the store, the job's own first.
  void AddForgotten(const JobId& job, std::vector<std::string> keys) {
    forgotten_[job] = std::move(keys);
  }
  bool HasForgotten() const { return !forgotten_.empty(); }
  // Whether the job has been deleted and still has records.
  bool IsForgotten(const JobId& job) const {
    return forgotten_.count(job) != 0 || kept_keys_.count(job) != 0;
  }
  // Moves up to `limit` keys of one deleted job into `writes`, as deletions; a job's own key is
  // deleted last, or kept with its idempotency key. Returns their number.
  size_t TakeDeletions(size_t limit, std::vector<store::Mutation>& writes);

 private:
  const size_t keep_jobs_;
  const absl::Duration keep_jobs_for_;
  using Finished = std::set<std::pair<SteadyTime, JobId>>;
  Finished finished_;
  std::map<std::string, Finished> by_owner_;
  std::map<JobId, OwnerAndKey> kept_keys_;
  std::map<JobId, std::vector<std::string>> forgotten_;
};

// Deletes finished jobs: when they are due, to make room, and on request.
class Eviction {
 public:
  Eviction(JobTable& jobs, JobNames& names, LogTails& log_tails, Histories& histories,
           MemoryBudget& memory, Context& context)
      : jobs_(jobs),
        names_(names),
        log_tails_(log_tails),
        histories_(histories),
        memory_(memory),
        context_(context),
        retention_(context.options.keep_jobs, context.options.keep_jobs_for) {}

  // Lets the finished job be deleted when it is due. `order`: its position among finished jobs.
  void Allow(Job& job, SteadyTime order);
  // As above, for the tasks of an array that has ended.
  void Allow(const JobArray& array);
  // Whether the id belongs to a deleted job that still has records.
  bool IsForgotten(const JobId& id) const { return retention_.IsForgotten(id); }

  // Return OK if there is room for `count` more jobs, or for `bytes` more of the owner, once all
  // finished jobs that may be deleted are. Errors: RESOURCE_EXHAUSTED.
  absl::Status CheckRoom(size_t count) const;
  absl::Status CheckMemory(const std::string& owner, size_t bytes) const;
  // Deletes finished jobs until there is room for `count` more, for which CheckRoom has returned
  // OK.
  void MakeRoom(size_t count);
  // Deletes finished jobs, first of the owner, until the owner may use `bytes` more memory. Each is
  // kept for a minute nevertheless. Errors: RESOURCE_EXHAUSTED.
  absl::Status MakeMemory(const std::string& owner, size_t bytes);
  MemoryBudget& memory() { return memory_; }
  // Removes a finished job from memory; its records are deleted over the following steps.
  void Remove(const JobId& id);
  // Deletes finished jobs that are due, a bounded number of records per step.
  void ForgetDue();
  // Sets the timer for the next ForgetDue.
  void Arm();

  // ---- Records
  void RestoreForgotten(const JobId& id, std::vector<std::string> keys) {
    retention_.AddForgotten(id, std::move(keys));
  }
  // Keeps the idempotency key of a deleted job.
  void RestoreKey(const v1::JobRecord& forgotten);
  // Called after the last job of the store has been added: deletes jobs of owners far beyond their
  // memory.
  void FinishRestore();

 private:
  // Deletes a finished job to make room, and reports it. `reason`: see StatsCollector.
  void Evict(const JobId& id, const std::string& reason);

  JobTable& jobs_;
  JobNames& names_;
  LogTails& log_tails_;
  Histories& histories_;
  MemoryBudget& memory_;
  Context& context_;
  Retention retention_;
  std::map<std::string, SteadyTime> warnings_;  // time of the newest of each owner
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_RETENTION_H_
