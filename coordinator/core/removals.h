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
  // Also ends the node's identity.
  void Handle(const RemoveNode& event);
  void Handle(const ConfirmNodeLost& event);

 private:
  absl::Status CheckJob(const RemoveJob& event) const;
  static absl::Status CheckDisconnected(const Node& node);
  absl::Status CheckNode(const NodeName& name) const;
  // Makes the connected nodes that ran the job delete its files.
  void DeleteFiles(const Job& job);

  JobTable& jobs_;
  NodeTable& nodes_;
  IdentityTable& identities_;
  LifeCycle& life_cycle_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_REMOVALS_H_
