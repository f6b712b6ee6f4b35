// The running jobs that make room for a job of a higher class: those of its owner that its limit
// requires, then any that are in its way.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_PREEMPT_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_PREEMPT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/time/time.h"
#include "coordinator/core/scheduler/plan/candidate.h"
#include "coordinator/core/scheduler/plan/cluster.h"
#include "coordinator/core/scheduler/plan/reserve.h"

namespace muster::core {

// Slots that stopping jobs leave to a job.
struct Clearing {
  Fit fit;
  std::vector<uint32_t> victims;  // running jobs that have to stop for it in addition
};

class Preemptor {
 public:
  Preemptor(const Cluster& cluster, const Holds& holds, const Allowance& allowance, SteadyTime now);

  // Whether the job may take the place of others.
  bool MayPreempt(const Candidate& job) const;
  // The slots that the job can have once jobs have stopped, if necessary further ones; nullopt: not
  // enough. `preferred`: nodes to use first.
  std::optional<Clearing> Find(const Candidate& job, const std::set<uint32_t>& preferred) const;
  // The victims will stop, and the slots are claimed.
  void Add(const Candidate& job, const Clearing& clearing);
  // A job has been started.
  void OnStart() { stopping_.resize(cluster_.all_running().size()); }

  const Stopping& stopping() const { return stopping_; }
  // Units that the nodes contribute to the job once the stopping jobs have ended.
  uint64_t UnitsAfterStops(const Candidate& job, const Cluster::Row& row) const {
    return UnitsAfter(job, row, stopping_);
  }

 private:
  // The slots of the node that are free once these jobs have ended, and not yet claimed.
  uint32_t FreeAfter(const Candidate& job, const Cluster::Row& row, uint32_t node,
                     const Stopping& stopping) const;
  // The units that the node contributes once these jobs have ended, at most those that the job
  // needs.
  uint32_t UnitsOn(const Candidate& job, const Cluster::Row& row, uint32_t node,
                   const Stopping& stopping) const;
  uint64_t UnitsAfter(const Candidate& job, const Cluster::Row& row,
                      const Stopping& stopping) const;
  std::optional<Clearing> FindInRow(const Candidate& job, uint32_t row,
                                    const std::set<uint32_t>& preferred) const;
  // Whether `a` makes room rather than `b`.
  bool IsCheaper(uint32_t a, uint32_t b) const;
  // Whether the running job may make room for the queued one.
  bool IsPreemptible(uint32_t running, const Candidate& job) const;
  // The owner's own jobs that have to make room so that the job does not exceed the limit; nullopt
  // if they do not suffice.
  std::optional<std::vector<uint32_t>> FindOwnVictims(const Candidate& job) const;
  // The jobs whose end lets the node contribute more, cheapest first; empty if there are none.
  // `stopping` is unchanged on return.
  std::vector<uint32_t> VictimsOn(const Candidate& job, const Cluster::Row& row, uint32_t node,
                                  Stopping& stopping) const;
  std::vector<uint32_t> FindVictims(const Candidate& job, const Cluster::Row& row,
                                    Stopping stopping) const;

  const Cluster& cluster_;
  const Holds& holds_;
  const Allowance& allowance_;
  const SteadyTime now_;
  Stopping stopping_;
  std::optional<JobClass> lowest_running_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> claimed_;  // slots, by kind and node
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_PREEMPT_H_
