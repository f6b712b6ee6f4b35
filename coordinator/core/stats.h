// Collects counters and samples for Core::TakeStats.
#ifndef MUSTER_COORDINATOR_CORE_STATS_H_
#define MUSTER_COORDINATOR_CORE_STATS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time.h"
#include "coordinator/core/goodput/ledger.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Totals since the process started and samples since the last call of TakeStats, for the metrics
// endpoint. Copied out between steps.
struct Stats {
  struct Finished {
    v1::JobState state;
    std::string reason;
    uint64_t count = 0;
  };
  struct Seconds {  // samples with a label
    std::string label;
    std::vector<double> samples;
  };
  uint64_t jobs_submitted = 0;
  uint64_t job_hangs = 0;
  uint64_t unkillable_ranks = 0;
  uint64_t checkpoint_failures = 0;
  std::vector<Finished> jobs_finished;
  std::vector<std::pair<std::string, uint64_t>> evicted_by_reason;
  std::vector<std::pair<std::string, uint64_t>> restarts_by_cause;
  std::vector<std::pair<std::string, uint64_t>> quarantined_by_field;
  std::vector<std::pair<std::string, uint64_t>> stragglers_by_phase;
  std::vector<double> queue_wait_seconds;
  std::vector<Seconds> rendezvous_seconds;  // label: phase (launch, join, communicators)
  std::vector<double> barrier_wait_seconds;
  std::vector<double> failure_detection_seconds;
  std::vector<double> recovery_seconds;
  std::vector<std::pair<std::string, double>> slot_seconds_by_cause;
  std::map<std::string, double> lost_slot_seconds_by_node;
};

// A rendezvous, communicator setup or barrier in progress.
struct LiveWait {
  JobId job;
  // rendezvous, communicators, barrier <group> or c10d store: few distinct values per job
  std::string what;
  SteadyTime since;      // start of the oldest barrier when a group has several
  uint32_t missing = 0;  // number of ranks
};

// Why finished jobs are deleted earlier than --keep-jobs requires: memory, the number of jobs.
inline constexpr char kEvictedForMemory[] = "memory";
inline constexpr char kEvictedForCount[] = "count";

// Not thread-safe.
class StatsCollector {
 public:
  void OnSubmitted() { ++stats_.jobs_submitted; }
  void OnFinished(v1::JobState state, const std::string& reason) { ++finished_[{state, reason}]; }
  void OnEvicted(const std::string& reason) { ++evicted_[reason]; }
  void OnRestart(const std::string& cause) { ++restarts_[cause]; }
  void OnHang() { ++stats_.job_hangs; }
  // Returns how many values of the field were out of bounds so far.
  uint64_t OnQuarantined(const std::string& field) { return ++quarantined_[field]; }
  void OnStraggler(const std::string& phase) { ++stragglers_[phase]; }
  void OnUnkillable() { ++stats_.unkillable_ranks; }
  void OnCheckpointFailures(uint64_t count) { stats_.checkpoint_failures += count; }
  void OnQueueWait(absl::Duration wait) { Add(stats_.queue_wait_seconds, wait); }
  void OnRendezvous(const std::string& phase, absl::Duration took) {
    Add(rendezvous_[phase], took);
  }
  void OnBarrier(absl::Duration wait) { Add(stats_.barrier_wait_seconds, wait); }
  void OnFailureDetected(absl::Duration after) { Add(stats_.failure_detection_seconds, after); }
  void OnTimeSettled(const Ledger& settled);
  void OnRecovered(absl::Duration took) { Add(stats_.recovery_seconds, took); }

  // Returns the totals, and the samples since the last call. The totals of slot time include
  // `certain`, which has not been settled yet.
  Stats Take(const Ledger& certain = Ledger());

 private:
  static void Add(std::vector<double>& samples, absl::Duration sample);

  std::map<std::pair<v1::JobState, std::string>, uint64_t> finished_;
  std::map<std::string, uint64_t> evicted_ = {{kEvictedForCount, 0}, {kEvictedForMemory, 0}};
  std::map<std::string, uint64_t> restarts_;
  std::map<std::string, uint64_t> quarantined_;
  std::map<std::string, uint64_t> stragglers_ = {{"compute", 0}, {"input", 0}};
  std::map<std::string, std::vector<double>> rendezvous_;
  std::map<v1::TimeCause, absl::Duration> slot_time_;
  std::map<v1::TimeCause, absl::Duration> reported_slot_time_;
  std::map<std::string, absl::Duration> lost_slot_time_;  // by node
  Stats stats_;  // totals that are not in a map, and the samples
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_STATS_H_
