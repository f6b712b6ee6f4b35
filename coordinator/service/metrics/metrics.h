// The coordinator's Prometheus metrics: counters and histograms updated as events happen, and
// gauges computed from the snapshot at each scrape.
#ifndef MUSTER_COORDINATOR_SERVICE_METRICS_METRICS_H_
#define MUSTER_COORDINATOR_SERVICE_METRICS_METRICS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/service/loop/snapshot.h"
#include "prometheus/collectable.h"
#include "prometheus/registry.h"

namespace prometheus {
class Histogram;
}

namespace muster::service {

// Thread-safe.
class Metrics {
 public:
  Metrics();

  // Adds the samples of `stats`.
  void Observe(const core::Stats& stats);
  void ObserveLag(absl::Duration lag);

  // The registry, to which other components add their own metrics.
  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

 private:
  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Histogram& lag_;
};

// The metrics derived from a snapshot. A job's series last for kEndedJobsStay after its end.
class SnapshotMetrics : public prometheus::Collectable {
 public:
  SnapshotMetrics(std::function<std::shared_ptr<const Snapshot>()> snapshot,
                  std::function<Time()> clock = Now)
      : snapshot_(std::move(snapshot)), clock_(std::move(clock)) {}

  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const std::function<std::shared_ptr<const Snapshot>()> snapshot_;
  const std::function<Time()> clock_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_METRICS_METRICS_H_
