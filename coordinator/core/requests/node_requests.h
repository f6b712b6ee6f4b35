// Handles the requests of operators about nodes.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_REQUESTS_NODE_REQUESTS_H_
#define MUSTER_COORDINATOR_CORE_REQUESTS_NODE_REQUESTS_H_

#include <set>
#include <string>

#include "absl/status/status.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "coordinator/core/identity/identity_table.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/lifecycle/generations.h"
#include "coordinator/core/lifecycle/life_cycle.h"
#include "coordinator/core/lifecycle/losses.h"
#include "coordinator/core/nodes/nodes.h"

namespace muster::core {

class NodeRequests {
 public:
  NodeRequests(JobTable& jobs, Nodes& nodes, IdentityTable& identities, Generations& generations,
               LifeCycle& life_cycle, Losses& losses, Context& context)
      : jobs_(jobs),
        nodes_(nodes.table),
        node_sessions_(nodes.sessions),
        health_(nodes.health),
        identities_(identities),
        generations_(generations),
        life_cycle_(life_cycle),
        losses_(losses),
        context_(context) {}

  void Handle(const CordonNode& event);
  void Handle(const UncordonNode& event);
  void Handle(const TestNode& event);
  // Also ends the node's identity. A node that is removed by force may not connect again. Its ranks
  // count as those of a silent node: those of train jobs are lost at once, those of command jobs
  // when they have ended for certain. Until then, the table keeps the node.
  void Handle(const RemoveNode& event);
  void Handle(const ConfirmNodeLost& event);
  // Removes evicted nodes without ranks from the table. Called at the end of a step.
  void RemoveEvicted();

 private:
  static absl::Status CheckDisconnected(const Node& node);
  absl::Status CheckNode(const RemoveNode& event) const;
  void Evict(const Node& node, const std::string& why);

  JobTable& jobs_;
  NodeTable& nodes_;
  NodeSessions& node_sessions_;
  NodeHealth& health_;
  IdentityTable& identities_;
  Generations& generations_;
  LifeCycle& life_cycle_;
  Losses& losses_;
  Context& context_;
  // Nodes that were removed by force and are still in the table. After a restart of the
  // coordinator, such a node stays in the table, as LOST, until it is removed again.
  std::set<NodeName> evicted_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_REQUESTS_NODE_REQUESTS_H_
