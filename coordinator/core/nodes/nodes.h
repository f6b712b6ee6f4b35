// The parts of the core that hold the nodes.
#ifndef MUSTER_COORDINATOR_CORE_NODES_NODES_H_
#define MUSTER_COORDINATOR_CORE_NODES_NODES_H_

#include "coordinator/core/context.h"
#include "coordinator/core/nodes/node_health.h"
#include "coordinator/core/nodes/node_sessions.h"
#include "coordinator/core/nodes/node_table.h"

namespace muster::core {

struct Nodes {
  explicit Nodes(Context& context)
      : table(context), health(table, context), sessions(table, health, context) {}

  NodeTable table;
  NodeHealth health;
  NodeSessions sessions;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_NODES_H_
