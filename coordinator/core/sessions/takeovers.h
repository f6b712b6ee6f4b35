// Handles requests to end the conflicts of nodes (see nodes/conflict.h): recovers the jobs of their
// ranks from the workers' records, or gives the ranks up.
//
// A recovery asks the workers for their records. When all have answered, or after a while, it
// rebuilds the jobs and makes the workers that answered join this cluster. They open a new session,
// in which their ranks are adopted or stopped like those of any worker that returns.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_SESSIONS_TAKEOVERS_H_
#define MUSTER_COORDINATOR_CORE_SESSIONS_TAKEOVERS_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/lifecycle/generations.h"
#include "coordinator/core/lifecycle/life_cycle.h"
#include "coordinator/core/lifecycle/losses.h"
#include "coordinator/core/lifecycle/queueing.h"
#include "coordinator/core/nodes/nodes.h"
#include "coordinator/core/recovery/rebuild.h"
#include "coordinator/core/sessions/reports.h"

namespace muster::core {

class Takeovers {
 public:
  Takeovers(Jobs& jobs, Nodes& nodes, Generations& generations, Queueing& queueing,
            LifeCycle& life_cycle, Losses& losses, Reports& reports, Context& context)
      : jobs_(jobs),
        nodes_(nodes.table),
        node_sessions_(nodes.sessions),
        generations_(generations),
        queueing_(queueing),
        life_cycle_(life_cycle),
        losses_(losses),
        reports_(reports),
        context_(context) {}

  void Handle(const RecoverJobs& event);
  // The corrections become problems in the response: their jobs are not recovered.
  void OnJobRecords(const Node& node, const v1::JobRecords& records,
                    const Corrections& corrections);
  // Continues without the workers that have not answered.
  void OnTimer() { Finish(); }

 private:
  struct Recovery {
    RequestId request;
    Actor actor;
    std::set<NodeName> unanswered;
    std::map<NodeName, NodeRecords> records;
    v1::RecoverJobsResponse response;
  };

  // The nodes in conflict that the request selects.
  absl::StatusOr<std::vector<const Node*>> Select(const RecoverJobs& event) const;
  void Discard(const RecoverJobs& event, const std::vector<const Node*>& nodes);
  void Finish();
  bool IsInConflict(const NodeName& name) const;
  // Ends the ranks that the store has on the node and that do not run there: ranks that are taken
  // over may have their slots.
  void EndMissingRanks(const NodeRecords& of_node);
  // Returns whether the job was missing or outdated in the store.
  bool TakeOver(RebuiltJob rebuilt);
  // Continues a generation that the store has lost, or queues the job again if there is no record.
  // Ends an older generation of the job. `message` is for people.
  void Continue(Job& job, std::optional<v1::GenerationRecord> record, std::string message);
  // Loses a rank of a generation that a newer one has replaced. It may still run on a connected
  // node: its slots stay occupied until it has exited.
  void Abandon(Job& job, RankState& rank);

  Jobs& jobs_;
  NodeTable& nodes_;
  NodeSessions& node_sessions_;
  Generations& generations_;
  Queueing& queueing_;
  LifeCycle& life_cycle_;
  Losses& losses_;
  Reports& reports_;
  Context& context_;
  std::optional<Recovery> recovery_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SESSIONS_TAKEOVERS_H_
