// One decision of the scheduler: which queued jobs start now, which slots are kept for jobs that
// cannot start, and which running jobs make room for others. A pure function of the queue, the
// cluster, the owners' use, the time, and the claims of the last decision; docs/design/scheduler.md
// gives the rules and their bounds.
//
// All ranks of a job start together or not at all. The first jobs that have to wait have a
// reservation: nodes that suffice for them, and the time at which these are free at the latest.
// Jobs behind them start if they leave these slots free by then (backfill). A job that a limit of
// its owner holds back, or that does not fit on the cluster, delays no other. Against starvation,
// the oldest overdue job of each class has a reservation, too: see overdue.cc.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/scheduler/cluster.h"
#include "coordinator/core/scheduler/fair_share.h"
#include "coordinator/core/scheduler/options.h"
#include "coordinator/core/scheduler/queue.h"
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

// Nodes that are kept for a job that has to wait.
struct Reservation {
  JobId job;
  std::vector<NodeName> nodes;
  // When they are free at the latest; infinite: unknown.
  SteadyTime from = SteadyTime::Infinite();
  // A claim: jobs are stopping on the nodes to make room. It holds until the job starts, also
  // against jobs ahead in the queue, so that no job is stopped in vain.
  bool after_preemption = false;
  // Kept because the job is overdue, also from jobs ahead of it that are not critical.
  bool overdue = false;
};

struct Preemption {
  JobId job;  // that takes the place
  std::vector<JobId> victims;
};

// The first job of an owner and class that fits on the cluster and the owner's limit.
struct Head {
  JobId job;                   // empty: none
  SteadyTime since;            // that it has been the first, and has waited for others
  bool waits_for_own = false;  // a job of both that was submitted earlier runs
};

struct Plan {
  // Claims, then those of critical jobs, of overdue jobs, and of others in the order of the queue.
  std::vector<Reservation> reservations;
  std::vector<Preemption> preemptions;  // that have to begin now
  std::map<uint32_t, Verdict> of_groups;
  std::map<std::pair<uint32_t, uint32_t>, Verdict> of_owners;  // by owner and group; come first
  std::map<std::pair<JobClass, uint32_t>, Head> heads;         // by class and line of the queue
  SteadyTime next_overdue = SteadyTime::Infinite();            // when the next of them is overdue
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
        last_(last) {}

  Plan Run(Start start);

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  // The slots of one kind on a node that are kept for a job.
  struct Hold {
    uint32_t node = 0;
    uint32_t kind = 0;
    SteadyTime from;
    uint32_t spare = 0;      // slots that may be used beyond `from`
    bool exclusive = false;  // of all kinds
    bool is_claim = false;
    JobId job;  // empty: several
  };
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
  using Share = std::pair<uint32_t, Contribution>;  // of a node
  struct Fit {
    uint32_t row = 0;
    SteadyTime from = SteadyTime::Infinite();
    std::vector<Share> shares;
    std::vector<uint32_t> spare;  // of each share
  };

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
  // Forgets the claim of a job that has started elsewhere. Its slots stay held in this decision.
  void DropClaim(const Candidate& job);
  // Jobs behind may have taken the free slots that a job was kept from.
  void CorrectVerdicts();
  Candidate Describe(const JobQueue::Entry& entry) const;
  // The slots that the owner's jobs have, or are being freed for them, other than for this job.
  // `after_stops`: without those of the jobs that are stopping.
  uint64_t UsedSlots(const Candidate& job, bool after_stops) const;
  // Whether the job would exceed its owner's limit, if it took this many slots.
  bool ExceedsLimit(const Candidate& job, uint64_t slots, bool after_stops) const;
  bool ExceedsLimit(const Candidate& job) const {
    return ExceedsLimit(job, job.slots, /*after_stops=*/false);
  }
  // The running jobs of the owner, by index, as of the beginning of the decision.
  const std::vector<uint32_t>& RunningOf(const std::string& owner) const;
  QueueWalk WalkQueue() const;
  // ---- Starts
  static bool EndsBefore(const Candidate& job, const Hold& hold);
  bool MayUse(const Candidate& job, const Cluster::Row& row, const Hold& hold) const;
  // The row with which the job fits now, and leaves the held slots free; nullopt if none.
  std::optional<uint32_t> FindRow(const Candidate& job) const;
  using Nodes = std::set<uint32_t>;
  // A request for these nodes, or any if null. nullopt: those on which the job fits are too large
  // for the limit of its owner.
  std::optional<StartRequest> MakeRequest(const Candidate& job, uint32_t row,
                                          const Nodes* nodes = nullptr) const;
  // Narrows the request so that the job takes no more slots than the limit of its owner allows.
  // Returns false if that is impossible.
  bool KeepLimit(const Candidate& job, const Cluster::Row& row, const Nodes* nodes,
                 StartRequest& request) const;
  void NoteStart(const Candidate& job, uint32_t row, const StartResult& result);
  // ---- Reservations: reserve.cc
  bool Reserve(const Candidate& job);
  std::optional<Fit> FindFit(const Candidate& job, uint32_t row) const;
  Fit GuessFit(const Candidate& job, uint32_t row, const std::vector<uint32_t>& free) const;
  void AddHolds(const Candidate& job, const Fit& fit, bool is_claim);
  const Hold* HoldOf(uint32_t node) const {
    return hold_of_[node] == kNone ? nullptr : &holds_[hold_of_[node]];
  }
  // ---- Preemption: preempt.cc
  // Whether the job may take the place of others.
  bool MayPreempt(const Candidate& job) const;
  // Keeps slots for the job that stopping jobs leave, if necessary after preempting others.
  // `preferred`: nodes to use first.
  bool Claim(const Candidate& job, const std::set<uint32_t>& preferred);
  bool ClaimRow(const Candidate& job, uint32_t row, const std::set<uint32_t>& preferred);
  // The slots of the node that are free once the jobs in `stops` have ended, and not yet claimed.
  uint32_t FreeAfterStops(const Candidate& job, const Cluster::Row& row, uint32_t node,
                          const std::vector<bool>& stops) const;
  uint64_t UnitsAfterStops(const Candidate& job, const Cluster::Row& row,
                           const std::vector<bool>& stops) const;
  // The jobs whose end lets the node contribute more, cheapest first; empty if there are none.
  std::vector<uint32_t> VictimsOn(const Candidate& job, const Cluster::Row& row, uint32_t node,
                                  const std::vector<bool>& stops) const;
  std::vector<uint32_t> FindVictims(const Candidate& job, const Cluster::Row& row,
                                    std::vector<bool> stops) const;
  bool IsCheaper(uint32_t a, uint32_t b) const;
  // Whether the running job may make room for the queued one.
  bool IsPreemptible(uint32_t running, const Candidate& job) const;
  // The owner's own jobs that have to make room so that the job does not exceed the limit; nullopt
  // if they do not suffice.
  std::optional<std::vector<uint32_t>> FindOwnVictims(const Candidate& job) const;
  // ---- Overdue jobs: overdue.cc
  // Starts the overdue jobs that may start ahead of others, or keeps slots for them.
  void ServeOverdue(Start start);
  // Brings plan_.heads up to date. Returns the oldest overdue job of each class, oldest first.
  std::vector<Head> FindOverdue();
  // The first job of the line that fits on the cluster and its owner's limit; null if none does.
  const JobQueue::Entry* FirstOf(const JobQueue::Line& line) const;

  const JobQueue& queue_;
  Cluster& cluster_;
  const OwnerUsage& usage_;
  const SchedulerOptions& options_;
  const SteadyTime now_;
  const Plan& last_;
  Plan plan_;
  std::set<JobId> claimants_;     // jobs that RenewClaims has dealt with
  std::set<JobId> kept_overdue_;  // jobs that ServeOverdue has dealt with
  uint32_t reservations_ = 0;     // that are no claims
  std::vector<Hold> holds_;
  std::vector<uint32_t> hold_of_;  // by node; kNone: no hold
  std::vector<bool> stops_;        // by running job: it is stopping, or will be
  std::optional<JobClass> lowest_running_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> claimed_;  // slots, by kind and node
  std::map<std::string, uint64_t> claimed_by_owner_;
  // Filled when it is needed first.
  mutable std::optional<absl::flat_hash_map<std::string, std::vector<uint32_t>>> running_of_owners_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_H_
