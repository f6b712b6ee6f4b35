// Handles requests to remove finished jobs and disconnected nodes, or to lose the ranks of the
// latter.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_REMOVALS_H_
#define MUSTER_COORDINATOR_CORE_REMOVALS_H_

#include "absl/status/status.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "coordinator/core/identity/identity_table.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/life_cycle.h"
#include "coordinator/core/nodes/node_table.h"

namespace muster::core {

class Removals {
 public:
  Removals(JobTable& jobs, NodeTable& nodes, IdentityTable& identities, LifeCycle& life_cycle,
           Context& context)
      : jobs_(jobs),
        nodes_(nodes),
        identities_(identities),
        life_cycle_(life_cycle),
        context_(context) {}

  void Handle(const RemoveJob& event);
  // Also ends the node's identity. A node that is removed by force may not connect again. Its ranks
  // count as those of a silent node: those of train jobs are lost at once, those of command jobs
  // when they have ended for certain. Until then, the table keeps the node.
  void Handle(const RemoveNode& event);
  void Handle(const ConfirmNodeLost& event);
  // Removes evicted nodes without ranks from the table. Called at the end of a step.
  void RemoveEvicted();

 private:
  absl::Status CheckJob(const RemoveJob& event) const;
  static absl::Status CheckDisconnected(const Node& node);
  absl::Status CheckNode(const RemoveNode& event) const;
  void Evict(const Node& node, const std::string& why);
  // Makes the connected nodes that ran the job delete its files.
  void DeleteFiles(const Job& job);

  JobTable& jobs_;
  NodeTable& nodes_;
  IdentityTable& identities_;
  LifeCycle& life_cycle_;
  Context& context_;
  // Nodes that were removed by force and are still in the table. After a restart of the
  // coordinator, such a node stays in the table, as LOST, until it is removed again.
  std::set<NodeName> evicted_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_REMOVALS_H_
