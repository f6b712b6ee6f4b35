// The order in which jobs are placed: by priority, then jobs that have run before (restarted or
// requeued), then by submission. The head blocks the others, so that small jobs do not starve a
// large one.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_QUEUE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_QUEUE_H_

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "common/ids.h"
#include "coordinator/core/jobs/job.h"

namespace muster::core {

// Not thread-safe.
class JobQueue {
 public:
  void Add(const Job& job) {
    const JobId id = job.id();
    const Place place{-job.spec().priority(), job.status.generation() == 0, job.queue_sequence, id};
    Remove(id);
    order_.insert(place);
    places_.emplace(id, place);
  }
  void Remove(const JobId& id) {
    const auto entry = places_.find(id);
    if (entry == places_.end()) return;
    order_.erase(entry->second);
    places_.erase(entry);
  }
  bool empty() const { return order_.empty(); }
  const JobId& head() const { return std::get<JobId>(*order_.begin()); }
  // 1 is the head; 0 for a job that is not queued.
  uint32_t PositionOf(const JobId& id) const {
    const auto entry = places_.find(id);
    if (entry == places_.end()) return 0;
    return static_cast<uint32_t>(std::distance(order_.begin(), order_.find(entry->second))) + 1;
  }
  std::vector<JobId> InOrder() const {
    std::vector<JobId> ids;
    for (const Place& place : order_) ids.push_back(std::get<JobId>(place));
    return ids;
  }

 private:
  using Place = std::tuple<int32_t, bool, uint64_t, JobId>;
  std::set<Place> order_;
  std::map<JobId, Place> places_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_QUEUE_H_
