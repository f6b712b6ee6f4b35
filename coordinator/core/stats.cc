#include "coordinator/core/stats.h"

#include <algorithm>
#include <utility>

#include "common/limits.h"

namespace muster::core {
namespace {

// The most samples of a series that are kept while nothing calls Take.
constexpr size_t kSamples = 10000;

}  // namespace

StatsCollector::StatsCollector() {
  for (const metrics::Family& family : kCoreFamilies) {
    if (family.type == MetricType::Counter && family.labels[0] == nullptr) {
      stats_.totals[{&family, {}}] = 0;
    }
  }
  for (const char* phase : {"compute", "input"}) Count("muster_stragglers_total", {phase}, 0);
  for (const char* reason : {kEvictedForCount, kEvictedForMemory}) {
    Count("muster_jobs_evicted_total", {reason}, 0);
  }
}

uint64_t StatsCollector::Count(Metric metric, std::vector<std::string> labels, uint64_t by) {
  return static_cast<uint64_t>(stats_.totals[{metric.family, std::move(labels)}] += by);
}

void StatsCollector::Observe(Metric metric, absl::Duration sample,
                             std::vector<std::string> labels) {
  std::vector<double>& samples = stats_.seconds[{metric.family, std::move(labels)}];
  if (samples.size() >= kSamples) samples.erase(samples.begin(), samples.begin() + kSamples / 2);
  samples.push_back(absl::ToDoubleSeconds(std::max(sample, absl::ZeroDuration())));
}

void StatsCollector::OnTimeSettled(const Ledger& settled) {
  for (const Ledger::Entry& entry : settled.entries()) {
    slot_time_[entry.cause] += entry.slot_time;
    if (entry.cause != v1::TIME_LOST_TO_NODE) continue;
    const bool known = lost_slot_time_.count(entry.node) != 0;
    if (known || lost_slot_time_.size() < limits::kNodes) {
      lost_slot_time_[entry.node] += entry.slot_time;
    }
  }
}

Stats StatsCollector::Take(const Ledger& certain) {
  std::map<v1::TimeCause, absl::Duration> slot_time = slot_time_;
  for (const Ledger::Entry& entry : certain.entries()) slot_time[entry.cause] += entry.slot_time;
  for (const auto& [cause, time] : slot_time) {
    if (time == absl::ZeroDuration()) continue;
    // The time of a hang is taken back; a counter must not decrease.
    absl::Duration& reported = reported_slot_time_[cause];
    reported = std::max(reported, time);
    stats_.totals[{Metric("muster_job_slot_seconds_total").family, {NameOf(cause)}}] =
        absl::ToDoubleSeconds(reported);
  }
  for (const auto& [node, time] : lost_slot_time_) {
    stats_.lost_slot_seconds_by_node[node] = absl::ToDoubleSeconds(time);
  }
  Stats taken = stats_;
  stats_.seconds.clear();
  return taken;
}

}  // namespace muster::core
