// Target list for Prometheus' http_sd_configs.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_DISCOVERY_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_DISCOVERY_H_

#include <string>

#include "coordinator/service/loop/snapshot.h"

namespace muster::service {

// A JSON list with one entry per worker that serves metrics.
std::string DiscoveryJson(const Snapshot& snapshot);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_DISCOVERY_H_
