// The queue of jobs that wait for resources, and whether it has to be examined again. Decisions are
// pure functions over this queue, the jobs and the nodes: placement.h, explain.h.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_SCHEDULER_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_SCHEDULER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/scheduler/queue.h"

namespace muster::core {

class Scheduler {
 public:
  const JobQueue& queue() const { return queue_; }

  // Adds a job that waits to be placed.
  void Add(const Job& job) {
    queue_.Add(job);
    OnCapacityChanged();
  }
  // Removes a job that no longer waits; jobs behind it may now be placed.
  void Remove(const JobId& id) {
    queue_.Remove(id);
    OnCapacityChanged();
  }
  // Removes the job at the head, which has been placed.
  void OnPlaced(const JobId& id) { queue_.Remove(id); }

  // Called when a job may fit that did not fit before.
  void OnCapacityChanged() { capacity_changed_ = true; }
  // Returns whether capacity, or the version of the nodes, changed since the last call.
  bool TakeCapacityChange(uint64_t nodes_version) {
    if (std::exchange(nodes_version_, nodes_version) != nodes_version) {
      queue_.UncheckShapes();
      capacity_changed_ = true;
    }
    return std::exchange(capacity_changed_, false);
  }
  // See JobQueue::CheckShapes.
  std::vector<JobId> CheckShapes(JobQueue::Check check) { return queue_.CheckShapes(check); }

 private:
  JobQueue queue_;
  uint64_t nodes_version_ = 0;
  bool capacity_changed_ = false;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_SCHEDULER_H_
