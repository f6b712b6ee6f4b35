// A queued job as one decision sees it, and the slots that it may have of owners' limits.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_CANDIDATE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_CANDIDATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/scheduler/fair_share.h"
#include "coordinator/core/scheduler/options.h"
#include "coordinator/core/scheduler/plan/cluster.h"
#include "coordinator/core/scheduler/plan/queue.h"
#include "coordinator/core/scheduler/plan/queue_order.h"

namespace muster::core {

struct Candidate {
  JobId id;
  std::string owner;
  uint32_t owner_index = 0;
  uint32_t group = 0;
  JobClass job_class = JobClass::kNormal;
  bool preempted = false;
  SteadyTime end;  // the latest, if it starts now
  const Cluster::Cells* cells = nullptr;
  uint32_t slots = 0;
};

Candidate Describe(const JobQueue::Entry& entry, const JobQueue& queue, Cluster& cluster,
                   SteadyTime now);

// Running jobs, by index, that are stopping or will be.
using Stopping = std::vector<bool>;

// The slots that owners' jobs have, or that claims keep for them, against the owners' limits.
class Allowance {
 public:
  // The running jobs of owners are those of the first call.
  Allowance(const Cluster& cluster, const OwnerUsage& usage, const SchedulerOptions& options)
      : cluster_(cluster), usage_(usage), options_(options) {}

  // 0: no limit.
  uint32_t LimitOf(const Candidate& job) const {
    return options_.LimitsOf(job.owner).running_slots;
  }
  // The slots of the owner's jobs, other than this one. `stopping`: without those of these jobs.
  uint64_t Used(const Candidate& job, const Stopping* stopping = nullptr) const;
  // Whether the job would exceed its owner's limit, if it took this many slots.
  bool IsExceeded(const Candidate& job, uint64_t slots, const Stopping* stopping = nullptr) const;
  bool IsExceeded(const Candidate& job, const Stopping* stopping = nullptr) const {
    return IsExceeded(job, job.slots, stopping);
  }
  const std::vector<uint32_t>& RunningOf(const std::string& owner) const;

  void AddClaim(const Candidate& job) { claimed_[job.owner] += job.slots; }
  // The job has started elsewhere.
  void DropClaim(const Candidate& job) { claimed_[job.owner] -= job.slots; }
  // The claim is one of the decision before.
  void NoteRenewed(const JobId& job) { renewed_.insert(job); }
  bool IsRenewed(const JobId& job) const { return renewed_.count(job) != 0; }

 private:
  const Cluster& cluster_;
  const OwnerUsage& usage_;
  const SchedulerOptions& options_;
  std::map<std::string, uint64_t> claimed_;  // slots, by owner
  std::set<JobId> renewed_;
  mutable std::optional<absl::flat_hash_map<std::string, std::vector<uint32_t>>> running_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_CANDIDATE_H_
