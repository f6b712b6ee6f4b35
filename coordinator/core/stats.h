// Counts what happens, for Core::TakeStats.
#ifndef MUSTER_COORDINATOR_CORE_STATS_H_
#define MUSTER_COORDINATOR_CORE_STATS_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/core.h"

namespace muster::core {

// Not thread-safe.
class StatsCollector {
 public:
  void OnSubmitted() { ++submitted_; }
  void OnFinished(v1::JobState state, const std::string& reason) { ++finished_[{state, reason}]; }
  void OnRestart(const std::string& cause) { ++restarts_[cause]; }
  void OnQueueWait(absl::Duration wait) { Add(samples_.queue_wait_seconds, wait); }
  void OnRendezvous(const std::string& phase, absl::Duration took) {
    Add(rendezvous_[phase], took);
  }
  void OnBarrier(absl::Duration wait) { Add(samples_.barrier_wait_seconds, wait); }
  void OnFailureDetected(absl::Duration after) { Add(samples_.failure_detection_seconds, after); }
  void OnRecovered(absl::Duration took) { Add(samples_.recovery_seconds, took); }

  // Totals, and the samples since the last call.
  Stats Take();

 private:
  static void Add(std::vector<double>& samples, absl::Duration sample);

  uint64_t submitted_ = 0;
  std::map<std::pair<v1::JobState, std::string>, uint64_t> finished_;
  std::map<std::string, uint64_t> restarts_;
  std::map<std::string, std::vector<double>> rendezvous_;
  Stats samples_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_STATS_H_
