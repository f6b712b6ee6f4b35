// Prometheus metrics of a worker's GPUs.
#ifndef MUSTER_WORKER_GPU_GPU_METRICS_H_
#define MUSTER_WORKER_GPU_GPU_METRICS_H_

#include <vector>

#include "prometheus/collectable.h"
#include "worker/gpu/monitor.h"

namespace muster::gpu {

// Exports the monitor's last readings; a scrape does not call NVML. Thread-safe.
class GpuMetrics : public prometheus::Collectable {
 public:
  // `monitor` must outlive this object.
  explicit GpuMetrics(const Monitor& monitor) : monitor_(monitor) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  const Monitor& monitor_;
};

}  // namespace muster::gpu

#endif  // MUSTER_WORKER_GPU_GPU_METRICS_H_
