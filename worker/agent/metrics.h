// What Prometheus sees of a worker and of the ranks on it.
#ifndef MUSTER_WORKER_AGENT_METRICS_H_
#define MUSTER_WORKER_AGENT_METRICS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "prometheus/collectable.h"
#include "worker/agent/rank/progress_board.h"

namespace muster::agent {

// What the worker knows of itself; every member may be read and written from any thread.
struct WorkerStatus {
  std::atomic<bool> session_up{false};
  std::atomic<double> loop_lag_seconds{0};
  std::atomic<int64_t> loop_tick_unix_ms{0};
  std::atomic<uint64_t> sessions_total{0};
};

// Reads memory only; a scrape never takes the loop's turn. Thread-safe.
class Metrics : public prometheus::Collectable {
 public:
  // Slots by kind: those that there are, and those that ranks occupy.
  using Slots = std::map<std::string, uint32_t>;

  Metrics(ProgressBoard& board, const WorkerStatus& status, Slots slots,
          std::function<Slots()> slots_in_use);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  ProgressBoard& board_;
  const WorkerStatus& status_;
  const Slots slots_;
  const std::function<Slots()> slots_in_use_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_METRICS_H_
