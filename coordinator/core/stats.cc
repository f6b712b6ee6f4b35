#include "coordinator/core/stats.h"

#include <algorithm>

#include "common/limits.h"

namespace muster::core {
namespace {

// The most samples kept while nothing calls Take.
constexpr size_t kSamples = 10000;

}  // namespace

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
  Stats stats = stats_;
  for (std::vector<double>* const samples :
       {&stats_.queue_wait_seconds, &stats_.barrier_wait_seconds, &stats_.failure_detection_seconds,
        &stats_.recovery_seconds}) {
    samples->clear();
  }
  for (const auto& [key, count] : finished_) {
    stats.jobs_finished.push_back({key.first, key.second, count});
  }
  stats.evicted_by_reason.assign(evicted_.begin(), evicted_.end());
  for (const auto& [cause, count] : restarts_) stats.restarts_by_cause.emplace_back(cause, count);
  stats.quarantined_by_field.assign(quarantined_.begin(), quarantined_.end());
  stats.stragglers_by_phase.assign(stragglers_.begin(), stragglers_.end());
  for (auto& [phase, samples] : rendezvous_) {
    stats.rendezvous_seconds.push_back({phase, std::move(samples)});
  }
  rendezvous_.clear();
  std::map<v1::TimeCause, absl::Duration> slot_time = slot_time_;
  for (const Ledger::Entry& entry : certain.entries()) slot_time[entry.cause] += entry.slot_time;
  for (const auto& [cause, time] : slot_time) {
    if (time == absl::ZeroDuration()) continue;
    // The time of a hang is taken back; a counter must not decrease.
    absl::Duration& reported = reported_slot_time_[cause];
    reported = std::max(reported, time);
    stats.slot_seconds_by_cause.emplace_back(NameOf(cause), absl::ToDoubleSeconds(reported));
  }
  for (const auto& [node, time] : lost_slot_time_) {
    stats.lost_slot_seconds_by_node[node] = absl::ToDoubleSeconds(time);
  }
  return stats;
}

void StatsCollector::Add(std::vector<double>& samples, absl::Duration sample) {
  if (samples.size() >= kSamples) samples.erase(samples.begin(), samples.begin() + kSamples / 2);
  samples.push_back(absl::ToDoubleSeconds(std::max(sample, absl::ZeroDuration())));
}

}  // namespace muster::core
