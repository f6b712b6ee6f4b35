// The HTTP endpoints of every daemon: /metrics, /livez, /readyz, /version.
#ifndef MUSTER_COMMON_HTTP_ENDPOINTS_H_
#define MUSTER_COMMON_HTTP_ENDPOINTS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/http/http_server.h"
#include "nlohmann/json.hpp"
#include "prometheus/collectable.h"

namespace muster::http {

// Serves GET /metrics in Prometheus' text format 0.0.4. Expired collectables are skipped.
void HandleMetrics(HttpServer& server,
                   std::vector<std::weak_ptr<prometheus::Collectable>> collectables);

// A condition for the daemon to be healthy. `check` is called on the server's threads.
struct HealthCheck {
  std::string name;
  std::function<absl::Status()> check;
};

// Serves GET /livez and /readyz: 200 `ok`, or 503 with a line for each failed check; with ?verbose
// a line for every check. `live` checks fail only for conditions that a restart would fix; `ready`
// checks may also fail for temporary ones.
void HandleHealth(HttpServer& server, std::vector<HealthCheck> live,
                  std::vector<HealthCheck> ready);

// Serves GET /version: {"software_version": …, "protocol_version": …}, with the fields that `more`
// returns at each request.
void HandleVersion(HttpServer& server, std::function<nlohmann::json()> more = nullptr);

}  // namespace muster::http

#endif  // MUSTER_COMMON_HTTP_ENDPOINTS_H_
