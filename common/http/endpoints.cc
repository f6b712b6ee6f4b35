#include "common/http/endpoints.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/version.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"

namespace muster::http {
namespace {

Response CheckHealth(const std::vector<HealthCheck>& checks, bool verbose) {
  Response response;
  for (const HealthCheck& check : checks) {
    const absl::Status status = check.check();
    if (!status.ok()) {
      response.status = 503;
      absl::StrAppend(&response.body, "[-]", check.name, " failed: ", status.message(), "\n");
    } else if (verbose) {
      absl::StrAppend(&response.body, "[+]", check.name, " ok\n");
    }
  }
  absl::StrAppend(&response.body, response.status == 200 ? "ok\n" : "not ok\n");
  return response;
}

}  // namespace

void HandleMetrics(HttpServer& server,
                   std::vector<std::weak_ptr<prometheus::Collectable>> collectables) {
  server.Handle("/metrics", [collectables = std::move(collectables)](const Request&) {
    std::vector<prometheus::MetricFamily> families;
    for (const auto& weak : collectables) {
      if (const auto collectable = weak.lock()) {
        std::vector<prometheus::MetricFamily> collected = collectable->Collect();
        families.insert(families.end(), std::make_move_iterator(collected.begin()),
                        std::make_move_iterator(collected.end()));
      }
    }
    return Response{200, "text/plain; version=0.0.4; charset=utf-8",
                    prometheus::TextSerializer().prometheus::Serializer::Serialize(families)};
  });
}

void HandleHealth(HttpServer& server, std::vector<HealthCheck> live,
                  std::vector<HealthCheck> ready) {
  const auto handle = [&server](const char* path, std::vector<HealthCheck> checks) {
    server.Handle(path, [checks = std::move(checks)](const Request& request) {
      return CheckHealth(checks, absl::StartsWith(request.query, "verbose"));
    });
  };
  handle("/livez", std::move(live));
  handle("/readyz", std::move(ready));
}

void HandleVersion(HttpServer& server, std::function<nlohmann::json()> more) {
  server.Handle("/version", [more = std::move(more)](const Request&) {
    nlohmann::json version = {{"software_version", kSoftwareVersion},
                              {"protocol_version", kProtocolVersion}};
    if (more) version.update(more());
    return Response{200, kJson, version.dump() + "\n"};
  });
}

}  // namespace muster::http
