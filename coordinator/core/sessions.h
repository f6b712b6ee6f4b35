// Handles the sessions of workers (Hello, messages, disconnects) and the requests of operators.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_SESSIONS_H_
#define MUSTER_COORDINATOR_CORE_SESSIONS_H_

#include "coordinator/core/event.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/life_cycle.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/reports.h"
#include "coordinator/core/scheduler/scheduler.h"

namespace muster::core {

class Sessions {
 public:
  Sessions(JobTable& jobs, NodeTable& nodes, Scheduler& scheduler, Rendezvous& rendezvous,
           Failures& failures, Hangs& hangs, LifeCycle& life_cycle, Reports& reports,
           Context& context)
      : jobs_(jobs),
        nodes_(nodes),
        scheduler_(scheduler),
        rendezvous_(rendezvous),
        failures_(failures),
        hangs_(hangs),
        life_cycle_(life_cycle),
        reports_(reports),
        context_(context) {}

  void Handle(const SessionOpened& event);
  void Handle(const SessionMessage& event);
  void Handle(const SessionClosed& event);
  void Handle(const CordonNode& event);
  void Handle(const UncordonNode& event);

 private:
  // Compares the inventory of a Hello with what the node should have.
  void Reconcile(const Node& node, const v1::Hello& hello);
  // Adopts a generation that the worker still has: its ranks continue under the new incarnation;
  // those that are missing are lost.
  void Adopt(const Node& node, Job& job, const v1::GenerationReport& report);
  // Handles a generation with ranks on the node that the worker does not know.
  void ReconcileMissing(const Node& node, Job& job);

  JobTable& jobs_;
  NodeTable& nodes_;
  Scheduler& scheduler_;
  Rendezvous& rendezvous_;
  Failures& failures_;
  Hangs& hangs_;
  LifeCycle& life_cycle_;
  Reports& reports_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SESSIONS_H_
