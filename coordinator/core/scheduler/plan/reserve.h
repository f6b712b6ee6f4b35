// Slots that are kept for jobs that have to wait.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_RESERVE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_RESERVE_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/scheduler/plan/candidate.h"
#include "coordinator/core/scheduler/plan/cluster.h"

namespace muster::core {

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

// Nodes on which a job fits from some time on.
struct Fit {
  uint32_t row = 0;
  SteadyTime from = SteadyTime::Infinite();
  std::vector<std::pair<uint32_t, Contribution>> shares;  // by node
  std::vector<uint32_t> spare;                            // of each share
};

// The slots that are kept in one decision.
class Holds {
 public:
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

  explicit Holds(const Cluster& cluster)
      : cluster_(cluster), by_node_(cluster.node_count(), kNone) {}

  const Hold* Of(uint32_t node) const {  // null: none
    return by_node_[node] == kNone ? nullptr : &holds_[by_node_[node]];
  }
  const std::vector<Hold>& all() const { return holds_; }
  // Whether the job, if it starts now, may use the node in spite of the hold.
  static bool MayUse(const Candidate& job, const Cluster::Row& row, const Hold& hold);
  // The row with which the job fits now, and leaves the held slots free; nullopt if none.
  std::optional<uint32_t> FindRow(const Candidate& job) const;
  // Finds the nodes on which the job fits first, apart from held ones. If it is not known when
  // enough of them are free, those that miss the fewest slots; `may_grow`: also when there are too
  // few nodes.
  std::optional<Fit> FindFit(const Candidate& job, SteadyTime now, bool may_grow) const;
  Reservation Add(const Candidate& job, const Fit& fit, bool is_claim);
  // The job has started with this row and takes these slots.
  void NoteStart(const Candidate& job, uint32_t row,
                 const std::vector<std::pair<NodeName, uint32_t>>& slots);

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  std::optional<Fit> FindFit(const Candidate& job, uint32_t row, SteadyTime now,
                             bool may_grow) const;
  Fit GuessFit(const Candidate& job, uint32_t row, const std::vector<uint32_t>& free,
               bool may_grow) const;

  const Cluster& cluster_;
  std::vector<Hold> holds_;
  std::vector<uint32_t> by_node_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_RESERVE_H_
