// The coordinator's own HTTP pages, rendered from a snapshot.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_PAGES_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_PAGES_H_

#include <string>

#include "common/time.h"
#include "coordinator/service/snapshot.h"

namespace muster::service {

// Target list for Prometheus' http_sd_configs: a JSON list with one entry per worker that serves
// metrics.
std::string DiscoveryJson(const Snapshot& snapshot);

// Status page with nodes and jobs. It is self-contained, has no scripts, and reloads itself.
std::string StatusPage(const Snapshot& snapshot, const Time& now);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_PAGES_H_
