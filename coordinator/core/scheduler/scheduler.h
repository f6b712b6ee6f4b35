// The queue of jobs that wait for resources, and whether it has to be looked at again. Decisions
// are pure functions over this queue, the jobs and the nodes: placement.h, explain.h.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_SCHEDULER_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_SCHEDULER_H_

#include <utility>

#include "common/ids.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/scheduler/queue.h"

namespace muster::core {

class Scheduler {
 public:
  const JobQueue& queue() const { return queue_; }

  // The job waits to be placed.
  void Add(const Job& job) {
    queue_.Add(job);
    OnCapacityChanged();
  }
  // The job no longer waits; those behind it may be placed.
  void Remove(const JobId& id) {
    queue_.Remove(id);
    OnCapacityChanged();
  }
  // The job at the head got its nodes.
  void OnPlaced(const JobId& id) { queue_.Remove(id); }

  // A job may fit that did not fit before.
  void OnCapacityChanged() { capacity_changed_ = true; }
  // Whether capacity changed since the last call.
  bool TakeCapacityChange() { return std::exchange(capacity_changed_, false); }

 private:
  JobQueue queue_;
  bool capacity_changed_ = false;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_SCHEDULER_H_
