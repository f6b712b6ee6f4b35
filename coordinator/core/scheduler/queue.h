// The order in which jobs are placed: by priority, then jobs that have run before (restarted or
// requeued), then by submission. The head blocks the others, so that small jobs do not starve a
// large one. Jobs that do not fit on the cluster even when it is idle are passed over.
//
// Every operation takes time logarithmic in the number of jobs.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_QUEUE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/ids.h"
#include "coordinator/core/jobs/job.h"

namespace muster::core {

// Not thread-safe.
class JobQueue {
 public:
  void Add(const Job& job);
  void Remove(const JobId& id);
  bool empty() const { return places_.empty(); }

  // The first job that is not unplaceable; null when there is none.
  const JobId* head() const { return heads_.empty() ? nullptr : &IdOf(*heads_.begin()); }
  // 1 for the first job, unplaceable or not; 0 for a job that is not queued.
  uint32_t PositionOf(const JobId& id) const;
  // The first `count` jobs in order.
  std::vector<JobId> First(size_t count) const;

  // ---- Jobs that do not fit on the cluster. They are found by their resources, because the jobs
  // of a long queue have few distinct ones. Calls `check` with a job of each distinct resource
  // request that has no verdict yet. It returns the reason why such jobs do not fit, empty if they
  // fit, or nullopt if that is not known yet. Returns the jobs whose reason has changed.
  using Check = absl::FunctionRef<std::optional<std::string>(const JobId&)>;
  std::vector<JobId> CheckShapes(Check check);
  // Makes CheckShapes check all requests again, because the nodes of the cluster have changed.
  void UncheckShapes();
  // The reason why the job does not fit; empty if it fits, is not queued, or has not been checked.
  const std::string& UnplaceableReason(const JobId& id) const;

 private:
  using Place = std::tuple<int32_t, bool, uint64_t, JobId>;
  // A red-black tree that also finds the rank of an element.
  using Order =
      __gnu_pbds::tree<Place, __gnu_pbds::null_type, std::less<Place>, __gnu_pbds::rb_tree_tag,
                       __gnu_pbds::tree_order_statistics_node_update>;
  // The jobs with one resource request.
  struct Shape {
    std::set<Place> jobs;
    std::string unplaceable;
  };
  using Shapes = std::map<std::string, Shape>;  // by serialized v1::Resources
  struct Entry {
    Place place;
    Shapes::iterator shape;
  };

  static const JobId& IdOf(const Place& place) { return std::get<JobId>(place); }
  void SetUnplaceable(Shape& shape, std::string reason);

  Order order_;
  std::map<JobId, Entry> places_;
  Shapes shapes_;
  std::set<Place> heads_;            // the first job of each shape that is not unplaceable
  std::set<std::string> unchecked_;  // shapes without a verdict that still holds
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_QUEUE_H_
