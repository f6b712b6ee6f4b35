// Collects counters and samples for the metrics endpoint.
#ifndef MUSTER_COORDINATOR_CORE_STATS_H_
#define MUSTER_COORDINATOR_CORE_STATS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/goodput/ledger.h"
#include "coordinator/metric_families.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// A family of kCoreFamilies by its name, which is checked when it is compiled.
struct Metric {
  consteval Metric(const char* name) : family(&metrics::Find(kCoreFamilies, name)) {}

  const metrics::Family* family;
};

// A series of a metric: the values of its labels, in the family's order.
struct Series {
  const metrics::Family* family;
  std::vector<std::string> labels;

  friend bool operator<(const Series& a, const Series& b) {
    return std::tie(a.family->name, a.labels) < std::tie(b.family->name, b.labels);
  }
};

// Copied out between steps.
struct Stats {
  std::map<Series, double> totals;                // counters, since the process started
  std::map<Series, std::vector<double>> seconds;  // samples of histograms since the last call
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
  // Counters without labels, and those whose labels are known, begin at 0.
  StatsCollector();

  // Adds to a counter. Returns its total.
  uint64_t Count(Metric metric, std::vector<std::string> labels = {}, uint64_t by = 1);
  // Adds a sample to a histogram of seconds.
  void Observe(Metric metric, absl::Duration sample, std::vector<std::string> labels = {});
  void OnTimeSettled(const Ledger& settled);

  // Returns the totals, and the samples since the last call. The totals of slot time include
  // `certain`, which has not been settled yet.
  Stats Take(const Ledger& certain = Ledger());

 private:
  Stats stats_;
  std::map<v1::TimeCause, absl::Duration> slot_time_;
  std::map<v1::TimeCause, absl::Duration> reported_slot_time_;
  std::map<std::string, absl::Duration> lost_slot_time_;  // by node
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_STATS_H_
