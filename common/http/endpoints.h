// The HTTP endpoints that every daemon has: /metrics, /livez, /readyz, /version.
#ifndef MUSTER_COMMON_HTTP_ENDPOINTS_H_
#define MUSTER_COMMON_HTTP_ENDPOINTS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/http/http_server.h"
#include "prometheus/collectable.h"

namespace muster::http {

// GET /metrics in Prometheus' text format 0.0.4. A collectable that is gone is left out.
void HandleMetrics(HttpServer& server,
                   std::vector<std::weak_ptr<prometheus::Collectable>> collectables);

// One thing that must hold for the daemon to do its work. Called on the server's threads.
struct HealthCheck {
  std::string name;
  std::function<absl::Status()> check;
};

// GET /livez and /readyz: 200 `ok`, or 503 with a line for each check that fails. With ?verbose a
// line for every check. Live is what a restart would mend; ready also what passes by itself.
void HandleHealth(HttpServer& server, std::vector<HealthCheck> live,
                  std::vector<HealthCheck> ready);

// GET /version: {"software_version": …, "protocol_version": …}.
void HandleVersion(HttpServer& server);

}  // namespace muster::http

#endif  // MUSTER_COMMON_HTTP_ENDPOINTS_H_
