// The coordinator's own HTTP pages, made from a snapshot.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_PAGES_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_PAGES_H_

#include <string>

#include "common/time.h"
#include "coordinator/service/snapshot.h"

namespace muster::service {

// For a Prometheus' http_sd_configs: every worker's metrics address, a JSON list with one entry
// each.
std::string DiscoveryJson(const Snapshot& snapshot);

// Nodes and jobs for a browser: one page without scripts or anything from elsewhere, which loads
// itself again.
std::string StatusPage(const Snapshot& snapshot, const Time& now);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_PAGES_H_
