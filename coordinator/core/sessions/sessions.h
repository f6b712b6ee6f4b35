// Handles the sessions of workers (Hello, messages, disconnects), and the start and end of the
// service for them.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_SESSIONS_SESSIONS_H_
#define MUSTER_COORDINATOR_CORE_SESSIONS_SESSIONS_H_

#include <string>

#include "coordinator/core/event.h"
#include "coordinator/core/identity/identity_table.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/lifecycle/generations.h"
#include "coordinator/core/lifecycle/life_cycle.h"
#include "coordinator/core/lifecycle/losses.h"
#include "coordinator/core/nodes/fence.h"
#include "coordinator/core/nodes/nodes.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "coordinator/core/sessions/reports.h"
#include "coordinator/core/sessions/takeovers.h"

namespace muster::core {

class Sessions {
 public:
  Sessions(JobTable& jobs, Nodes& nodes, Fence& fence, IdentityTable& identities,
           Scheduler& scheduler, Rendezvous& rendezvous, Failures& failures, Hangs& hangs,
           Generations& generations, LifeCycle& life_cycle, Losses& losses, Takeovers& takeovers,
           Reports& reports, Context& context)
      : jobs_(jobs),
        nodes_(nodes.table),
        node_sessions_(nodes.sessions),
        health_(nodes.health),
        fence_(fence),
        identities_(identities),
        scheduler_(scheduler),
        rendezvous_(rendezvous),
        failures_(failures),
        hangs_(hangs),
        generations_(generations),
        life_cycle_(life_cycle),
        losses_(losses),
        takeovers_(takeovers),
        reports_(reports),
        context_(context) {}

  void Handle(const SessionOpened& event);
  void Handle(const SessionMessage& event);
  void Handle(const SessionClosed& event);
  void Handle(const Listening& event);
  void Handle(const Closing& event);

 private:
  // Counts the service's corrections of the node's messages, logs some of them, and adds warnings
  // to the jobs that they name.
  void NoteCorrections(const Node& node, const Corrections& corrections);
  void Warn(const Node& node, const Correction& correction);
  // Compares the inventory of a Hello with what the node should have.
  void Reconcile(const Node& node, const v1::Hello& hello);
  // Adopts a generation that the worker still has: its ranks continue under the new incarnation;
  // those that are missing are lost.
  void Adopt(const Node& node, Job& job, const v1::GenerationReport& report);
  // The worker does not hold a generation that the coordinator sent it a message about.
  void OnUnknownGeneration(const Node& node, const v1::UnknownGeneration& unknown);
  // Handles a generation with ranks on the node that the worker does not know.
  void ReconcileMissing(const Node& node, Job& job, const std::string& why);

  JobTable& jobs_;
  NodeTable& nodes_;
  NodeSessions& node_sessions_;
  NodeHealth& health_;
  Fence& fence_;
  IdentityTable& identities_;
  Scheduler& scheduler_;
  Rendezvous& rendezvous_;
  Failures& failures_;
  Hangs& hangs_;
  Generations& generations_;
  LifeCycle& life_cycle_;
  Losses& losses_;
  Takeovers& takeovers_;
  Reports& reports_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SESSIONS_SESSIONS_H_
