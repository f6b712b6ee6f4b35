// One decision of the scheduler: which queued jobs start now, which slots are kept for jobs that
// cannot start, and which running jobs make room for others. A pure function of the queue, the
// cluster, the owners' use, the time, and the claims of the last decision; docs/design/scheduler.md
// gives the rules and their bounds.
//
// All ranks of a job start together or not at all. The first jobs that have to wait have a
// reservation: nodes that suffice for them, and the time at which these are free at the latest.
// Jobs behind them start if they leave these slots free by then (backfill). A job that a limit of
// its owner holds back, or that does not fit on the cluster, delays no other. Against starvation,
// the oldest overdue job of each class has a reservation, too: see overdue.h.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_PLAN_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/scheduler/fair_share.h"
#include "coordinator/core/scheduler/options.h"
#include "coordinator/core/scheduler/plan/candidate.h"
#include "coordinator/core/scheduler/plan/cluster.h"
#include "coordinator/core/scheduler/plan/overdue.h"
#include "coordinator/core/scheduler/plan/preempt.h"
#include "coordinator/core/scheduler/plan/queue.h"
#include "coordinator/core/scheduler/plan/reserve.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Why a queued job did not start in the last decision.
enum class Hindrance {
  kNotExamined,  // the decision ended before it: see SchedulerOptions.backfill_depth
  kUnplaceable,  // the cluster is too small
  kOwnerLimit,   // it would exceed its owner's running slots
  kNoSlots,      // too few slots are free
  kReserved,     // the free slots are kept for a job ahead of it
  kNotPlaced,    // enough slots are free, but their GPUs cannot be combined
};

struct Verdict {
  Hindrance hindrance = Hindrance::kNotExamined;
  uint32_t slots = 0;  // that the job takes at least
};

struct Preemption {
  JobId job;  // that takes the place
  std::vector<JobId> victims;
};

struct Plan {
  // Claims, then those of critical jobs, of overdue jobs, and of others in the order of the queue.
  std::vector<Reservation> reservations;
  std::vector<Preemption> preemptions;  // that have to begin now
  std::map<uint32_t, Verdict> of_groups;
  std::map<std::pair<uint32_t, uint32_t>, Verdict> of_owners;  // by owner and group; come first
  Heads heads;
  SteadyTime next_overdue = SteadyTime::Infinite();  // when the next of them is overdue
  // The slots that overdue jobs have or are kept for them, and their limit.
  uint64_t overdue_slots = 0;
  uint64_t most_overdue_slots = 0;

  Verdict Find(const JobQueue::Entry& entry) const;
  const Reservation* FindReservation(const JobId& job) const;  // null: none
};

// Asks the caller to start a job with these resources, which are those of the job, narrowed so that
// reserved slots stay free.
struct StartRequest {
  JobId job;
  v1::Resources resources;
  bool narrowed = false;
  bool overdue = false;  // it starts because it is overdue, ahead of others
};
struct StartResult {
  enum class Outcome {
    kStarted,
    kNotPlaced,
    kGone,  // the job has failed, and left the queue
  };
  Outcome outcome = Outcome::kNotPlaced;
  std::vector<std::pair<NodeName, uint32_t>> slots;  // of a job that was started, by node
};

class Planner {
 public:
  // `start` has to remove a job that it starts from the queue, and to refresh the cluster.
  using Start = absl::FunctionRef<StartResult(const StartRequest&)>;

  // `last`: the decision before.
  Planner(const JobQueue& queue, Cluster& cluster, const OwnerUsage& usage,
          const SchedulerOptions& options, SteadyTime now, const Plan& last)
      : queue_(queue),
        cluster_(cluster),
        usage_(usage),
        options_(options),
        now_(now),
        last_(last),
        allowance_(cluster, usage, options),
        holds_(cluster),
        preemptor_(cluster, holds_, allowance_, now) {}

  Plan Run(Start start);

 private:
  // Starts the jobs whose claims have been fulfilled, and renews the other claims.
  void RenewClaims(Start start);
  // Whether a queued job of a higher class than the claimant, without a claim of its own, fits once
  // the stopping jobs have ended, and could use one of the nodes. It takes the slots that are being
  // freed there, so that the claimant does not start only to be preempted.
  bool IsOutranked(const Candidate& claimant, const std::set<uint32_t>& nodes) const;
  StartResult CallStart(Start start, const StartRequest& request);
  // Returns whether the job has started, or left the queue.
  bool StartOnClaim(const Candidate& job, const std::set<uint32_t>& nodes, Start start);
  void Examine(QueueWalk& walk, Start start);
  // Starts the overdue jobs that may start ahead of others, or keeps slots for them.
  void ServeOverdue(Start start);
  // Forgets the claim of a job that has started elsewhere. Its slots stay held in this decision.
  void DropClaim(const Candidate& job);
  // Jobs behind may have taken the free slots that a job was kept from.
  void CorrectVerdicts();
  Candidate Describe(const JobQueue::Entry& entry) const {
    return core::Describe(entry, queue_, cluster_, now_);
  }
  QueueWalk WalkQueue() const;
  using Nodes = std::set<uint32_t>;
  // A request for these nodes, or any if null. nullopt: those on which the job fits are too large
  // for the limit of its owner.
  std::optional<StartRequest> MakeRequest(const Candidate& job, uint32_t row,
                                          const Nodes* nodes = nullptr) const;
  // Narrows the request so that the job takes no more slots than the limit of its owner allows.
  // Returns false if that is impossible.
  bool KeepLimit(const Candidate& job, const Cluster::Row& row, const Nodes* nodes,
                 StartRequest& request) const;
  bool Reserve(const Candidate& job);
  bool MayPreempt(const Candidate& job) const {
    return options_.preemption && preemptor_.MayPreempt(job);
  }
  // Keeps slots for the job that stopping jobs leave, if necessary after preempting others.
  // `preferred`: nodes to use first.
  bool Claim(const Candidate& job, const std::set<uint32_t>& preferred);

  const JobQueue& queue_;
  Cluster& cluster_;
  const OwnerUsage& usage_;
  const SchedulerOptions& options_;
  const SteadyTime now_;
  const Plan& last_;
  Allowance allowance_;
  Holds holds_;
  Preemptor preemptor_;
  Plan plan_;
  std::set<JobId> kept_overdue_;  // jobs that ServeOverdue has dealt with
  uint32_t reservations_ = 0;     // that are no claims
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_PLAN_H_
