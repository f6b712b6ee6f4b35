// JSON of a node for the page that shows it.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_JSON_NODE_JSON_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_JSON_NODE_JSON_H_

#include <string>

#include "proto/muster/v1/node.pb.h"

namespace muster::service {

std::string NodeJson(const v1::Node& node);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_JSON_NODE_JSON_H_
