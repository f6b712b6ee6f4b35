// Loses ranks: those of nodes that were lost, and those whose leases have ended.
//
// After a node's own lease, nothing new is placed on it. When the lease of a job ends, its ranks
// there are lost; those of a command job once they have ended for certain (see nodes/fence.h).
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_LIFECYCLE_LOSSES_H_
#define MUSTER_COORDINATOR_CORE_LIFECYCLE_LOSSES_H_

#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/lifecycle/life_cycle.h"
#include "coordinator/core/nodes/fence.h"
#include "coordinator/core/nodes/nodes.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/scheduler/scheduler.h"

namespace muster::core {

class Losses {
 public:
  Losses(JobTable& jobs, Nodes& nodes, Fence& fence, Scheduler& scheduler, Rendezvous& rendezvous,
         Failures& failures, LifeCycle& life_cycle, Context& context)
      : jobs_(jobs),
        nodes_(nodes.table),
        node_sessions_(nodes.sessions),
        fence_(fence),
        scheduler_(scheduler),
        rendezvous_(rendezvous),
        failures_(failures),
        life_cycle_(life_cycle),
        context_(context) {}

  // Ends the node's leases and session, and loses its ranks.
  void LoseNode(const NodeName& name, const std::string& why);
  // Loses the ranks of these generations on the node.
  void LosePlaced(const Node& node, const std::vector<std::pair<JobId, Generation>>& generations,
                  const std::string& why);
  void LoseRank(Job& job, RankState& rank);
  // Loses the job's ranks on nodes whose stream broke if a rank on another node also reported the
  // loss of one of them: without it, they cannot make progress, even if they still run.
  void LoseAccusedNodes(const Job& job);
  // Aborts the barriers that can never complete, of every job on the node.
  void AbortHopelessBarriers(const NodeName& name);

  // ---- Leases
  // The node's own lease has ended.
  void OnLeaseEnd(const NodeName& name);
  // Loses the ranks of the jobs whose lease on the node has ended.
  void OnJobLeaseEnd(const NodeName& name);
  // A member of the fence set has answered: loses the ranks that have ended for certain.
  void OnBansKept(const NodeName& member, const v1::BansKept& kept);
  // The timer of a job's rendezvous has fired. It is set again while a silent node of the job may
  // still run ranks.
  void OnPhaseTimer(Job& job);
  // Marks the ranks of command jobs on nodes that have not connected yet: they may run without
  // being heard of, because they cannot know this coordinator's address.
  void ExpectReports();
  // The node has reported its ranks.
  void OnReported(const NodeName& name);
  // Adds an event to the jobs with ranks on the node, which is SUSPECT.
  void AddSuspectEvents(const Node& node, const std::string& what);

 private:
  // The node if its leases may end; null otherwise.
  const Node* FindLeased(const NodeName& name) const;
  // Whether the job's ranks on a node whose lease has ended have ended for certain, or do no harm.
  bool HaveEnded(const Node& node, const Job& job);
  SteadyTime JobLeaseEnd(const Node& node, const Job& job) const;

  JobTable& jobs_;
  NodeTable& nodes_;
  NodeSessions& node_sessions_;
  Fence& fence_;
  Scheduler& scheduler_;
  Rendezvous& rendezvous_;
  Failures& failures_;
  LifeCycle& life_cycle_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_LIFECYCLE_LOSSES_H_
