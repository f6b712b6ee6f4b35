// The coordinator's own HTTP pages, rendered from a snapshot.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_PAGES_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_PAGES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/time.h"
#include "coordinator/service/snapshot.h"

namespace muster::service {

// Target list for Prometheus' http_sd_configs: a JSON list with one entry per worker that serves
// metrics.
std::string DiscoveryJson(const Snapshot& snapshot);

// Status page with nodes and jobs. It is self-contained, has no scripts, and reloads itself.
std::string StatusPage(const Snapshot& snapshot, const Time& now);

inline constexpr char kJobPath[] = "/job";

// Page of the job that `query` names, as in "id=train-x7k2p"; nullopt if the snapshot has no such
// job.
std::optional<std::string> JobPage(const Snapshot& snapshot, absl::string_view query,
                                   const Time& now);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_PAGES_H_
