// The HTTP server of a worker: its health, and Prometheus metrics of it and of the ranks on it.
#ifndef MUSTER_WORKER_AGENT_METRICS_H_
#define MUSTER_WORKER_AGENT_METRICS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/http/address.h"
#include "common/http/endpoints.h"
#include "common/http/http_server.h"
#include "prometheus/collectable.h"
#include "worker/agent/rank/progress_board.h"

namespace muster::agent {

// State of the worker; all members may be accessed from any thread.
struct WorkerStatus {
  std::atomic<bool> session_up{false};
  std::atomic<double> loop_lag_seconds{0};
  std::atomic<int64_t> loop_tick_ms{0};  // on the steady clock
  std::atomic<uint64_t> sessions_total{0};
  std::atomic<bool> in_conflict{false};
};

// Collects from memory only; a scrape does not wait for the event loop. Thread-safe.
class Metrics : public prometheus::Collectable {
 public:
  // Number of slots by kind.
  using Slots = std::map<std::string, uint32_t>;

  Metrics(ProgressBoard& board, const WorkerStatus& status, Slots slots);
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  ProgressBoard& board_;
  const WorkerStatus& status_;
  const Slots slots_;
};

// Thread-safe.
class StatusServer {
 public:
  // Listens at the address HOST:PORT. `gpus`: null without GPUs. The worker is alive while its
  // event loop runs, and ready while `session` and `cluster` are healthy, too. Errors: those of
  // HttpServer::Start.
  static absl::StatusOr<std::unique_ptr<StatusServer>> Start(
      const std::string& listen, const WorkerStatus& status, std::shared_ptr<Metrics> metrics,
      std::shared_ptr<prometheus::Collectable> gpus, http::HealthCheck session,
      http::HealthCheck cluster);

  const Address& address() const { return http_->address(); }

 private:
  StatusServer() = default;

  std::shared_ptr<Metrics> metrics_;
  std::shared_ptr<prometheus::Collectable> gpus_;
  std::unique_ptr<http::HttpServer> http_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_METRICS_H_
