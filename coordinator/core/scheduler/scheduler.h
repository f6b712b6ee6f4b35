// The scheduler: the queue of jobs that wait for resources, the cluster as decisions see it, and
// the last decision, with which everything that explains the queue agrees.
//
// A decision is due when slots may have become free, jobs have joined the queue, or a job is
// overdue. In between, nothing that it depends on changes.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_SCHEDULER_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/scheduler/fair_share.h"
#include "coordinator/core/scheduler/plan/cluster.h"
#include "coordinator/core/scheduler/plan/plan.h"
#include "coordinator/core/scheduler/plan/queue.h"
#include "coordinator/core/scheduler/plan/queue_order.h"

namespace muster::core {

// The job as the queue and the cluster see it.
QueueItem QueueItemOf(const Job& job, const Time& now);
RunningJob RunningJobOf(const Job& job, const Time& now);
// The slots that no other job can use because of the job's living generation.
uint32_t SlotsOf(const Job& job);

class Scheduler {
 public:
  explicit Scheduler(const Context& context)
      : context_(context),
        queue_(context.options.scheduler.lookahead),
        fair_share_(context.options.scheduler.half_life) {}

  const JobQueue& queue() const { return queue_; }
  const Cluster& cluster() const { return cluster_; }
  const SchedulerOptions& options() const { return context_.options.scheduler; }
  // The last decision.
  const Plan& plan() const { return plan_; }
  // See JobQueue. Jobs that start at the same time count with what their owners have used by now.
  uint32_t PositionOf(const JobId& id) const { return queue_.PositionOf(id, Standings()); }
  // The first `count` jobs in order.
  std::vector<JobId> First(size_t count) const;
  // The positions of all queued jobs, in time that is linear in their number.
  absl::flat_hash_map<std::string, uint32_t> Positions() const;

  // ---- Queued jobs
  void Add(Job& job) {
    job.BeginWait(context_.now);
    Replace(job);
    OnCapacityChanged();
  }
  // Puts a queued job in its new place, without another decision.
  void Replace(const Job& job) { queue_.Add(QueueItemOf(job, context_.now)); }
  // Removes a job that no longer waits; jobs behind it may now be placed.
  void Remove(Job& job) {
    job.EndWait(context_.now);
    queue_.Remove(job.id());
    OnCapacityChanged();
  }

  // ---- Running jobs
  // The job has been placed; its generation is recorded. Also after a restart of the coordinator.
  void OnStarted(Job& job);
  // The generation is stopping, or its grace period is another one.
  void OnStopping(const Job& job) { SetRunning(job); }
  // Nothing of the generation with this many slots is left.
  void OnEnded(const Job& job, uint32_t slots);

  // ---- Decisions
  // Called when a job may fit that did not fit before.
  void OnCapacityChanged() { capacity_changed_ = true; }
  // Returns whether a decision is due, after bringing the queue and the cluster up to date.
  bool TakeCapacityChange(NodeTable& nodes);
  // See JobQueue::CheckShapes.
  std::vector<JobId> CheckShapes(JobQueue::Check check) { return queue_.CheckShapes(check); }
  // Whether the queued job certainly fits on the cluster when no other job runs.
  bool SurelyFitsVacant(const JobId& id);
  // Decides which jobs start; `start` calls Refresh for each.
  const Plan& Decide(Planner::Start start);
  // Reads the nodes that have changed again.
  void Refresh(NodeTable& nodes);
  bool HasCapacityChanged() const { return capacity_changed_; }

  // The decision if this job were submitted now. `start` is called for it alone, if it fits.
  struct Forecast {
    Plan plan;
    bool started = false;
    uint32_t position = 0;
    Verdict verdict;
  };
  Forecast ForecastOf(const Job& job, const NodeTable& nodes, Planner::Start start) const;

  // Whether a job in the queue waits for slots, rather than for a larger cluster or another limit.
  bool SomeJobWaits() const;

  // ---- Owners
  // Whether the owner's limit forbids this many further slots.
  bool ExceedsLimit(const std::string& owner, uint32_t slots) const;
  const OwnerUsage& usage() const { return *usage_; }
  // Replaces the record of the owners' use, which must outlive the scheduler.
  void SetUsage(const OwnerUsage& usage) { usage_ = &usage; }
  Standing StandingOf(const std::string& owner) const;

 private:
  std::function<Standing(const std::string&)> Standings() const {
    return [this](const std::string& owner) { return StandingOf(owner); };
  }
  void SetRunning(const Job& job);

  const Context& context_;
  JobQueue queue_;
  Cluster cluster_;
  FairShare fair_share_;
  const OwnerUsage* usage_ = &fair_share_;
  Plan plan_;
  uint64_t nodes_version_ = 0;
  uint64_t known_nodes_ = 0;  // NodeTable::members() as of the last Rebuild
  bool capacity_changed_ = false;
  std::set<NodeName> changed_nodes_;  // whose running jobs have changed
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_SCHEDULER_H_
