#include "coordinator/core/stats.h"

#include <algorithm>

namespace muster::core {
namespace {

// The most samples kept while nothing calls Take.
constexpr size_t kSamples = 10000;

}  // namespace

Stats StatsCollector::Take() {
  Stats stats = std::move(samples_);
  samples_ = Stats();
  stats.jobs_submitted = submitted_;
  stats.job_hangs = hangs_;
  stats.unkillable_ranks = unkillable_;
  stats.checkpoint_failures = checkpoint_failures_;
  for (const auto& [key, count] : finished_) {
    stats.jobs_finished.push_back({key.first, key.second, count});
  }
  for (const auto& [cause, count] : restarts_) stats.restarts_by_cause.emplace_back(cause, count);
  stats.quarantined_by_field.assign(quarantined_.begin(), quarantined_.end());
  stats.stragglers_by_phase.assign(stragglers_.begin(), stragglers_.end());
  for (auto& [phase, samples] : rendezvous_) {
    stats.rendezvous_seconds.push_back({phase, std::move(samples)});
  }
  rendezvous_.clear();
  return stats;
}

void StatsCollector::Add(std::vector<double>& samples, absl::Duration sample) {
  if (samples.size() >= kSamples) samples.erase(samples.begin(), samples.begin() + kSamples / 2);
  samples.push_back(absl::ToDoubleSeconds(std::max(sample, absl::ZeroDuration())));
}

}  // namespace muster::core
