#include "coordinator/service/http/discovery.h"

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster::service {
namespace {

// Returns the scrape target; a metrics address without a host is completed with the node's address.
std::string MetricsTarget(const v1::Node& node) {
  const std::string& address = node.metrics_address();
  if (!absl::StartsWith(address, ":")) return address;
  if (absl::StrContains(node.address(), ':')) {
    return absl::StrCat("[", node.address(), "]", address);
  }
  return node.address() + address;
}

}  // namespace

std::string DiscoveryJson(const Snapshot& snapshot) {
  nlohmann::json groups = nlohmann::json::array();
  for (const v1::Node& node : snapshot.nodes) {
    if (node.metrics_address().empty()) continue;
    groups.push_back({{"targets", {MetricsTarget(node)}}, {"labels", {{"node", node.name()}}}});
  }
  // A protobuf string cannot hold invalid UTF-8, but a page must never throw.
  return groups.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace muster::service
