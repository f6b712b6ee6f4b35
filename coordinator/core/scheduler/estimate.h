// Estimates when a queued job may start by simulating the queue over the slots that running jobs
// will free.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_ESTIMATE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_ESTIMATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/scheduler/placement/request.h"

namespace muster::core {

// The slots of the cluster as placement sees them, with counts in place of individual slots.
struct Forecast {
  struct Pool {
    uint32_t slots = 0;
    uint32_t free = 0;
  };
  // Keyed by kind of slot, then indexed by node in order of placement.
  std::map<std::string, std::vector<Pool>> pools;
  // Slots that a job frees after `in`.
  struct Release {
    absl::Duration in;
    std::string kind;
    size_t node = 0;
    uint32_t slots = 0;
  };
  std::vector<Release> releases;
};

struct QueuedJob {
  Shape shape;
  std::vector<std::string> kinds;  // in order of preference
  // The longest time that the job can run.
  absl::Duration length = absl::InfiniteDuration();
};

// Returns the time until the last job of `queue` is placed, where each job is placed after those
// before it; nullopt when that depends on a job with unknown running time, or when there are more
// jobs or releases than the work limit allows.
std::optional<absl::Duration> EstimateStart(Forecast forecast, const std::vector<QueuedJob>& queue);

// The same for each job of `queue`; nullopt also for the jobs after one that has no estimate.
std::vector<std::optional<absl::Duration>> EstimateStarts(Forecast forecast,
                                                          const std::vector<QueuedJob>& queue);

// The longest queue that these consider.
inline constexpr size_t kForecastJobs = 256;

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_ESTIMATE_H_
