// Estimates when a queued job may start, by playing the queue forward over the slots that running
// jobs will free.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_ESTIMATE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_ESTIMATE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/scheduler/rank_map.h"

namespace muster::core {

// What is placed on, as placement sees it; numbers in place of slots.
struct Forecast {
  struct Pool {
    uint32_t slots = 0;
    uint32_t free = 0;
  };
  // By kind of slot, then by node, in the order of placement.
  std::map<std::string, std::vector<Pool>> pools;
  // Slots that a job gives back.
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
  std::vector<std::string> kinds;  // the best first
  // How long it runs at most.
  absl::Duration length = absl::InfiniteDuration();
};

// How long it takes until the last of `queue` is placed, each job after those before it; none when
// that rests on a job that says nothing about its end. Bounded work: with more jobs or releases
// than it looks at, none.
std::optional<absl::Duration> EstimateStart(Forecast forecast, const std::vector<QueuedJob>& queue);

// The longest queue that EstimateStart looks at.
inline constexpr size_t kForecastJobs = 256;

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_ESTIMATE_H_
