// Applies workers' reports about their ranks and slots.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_REPORTS_H_
#define MUSTER_COORDINATOR_CORE_REPORTS_H_

#include <vector>

#include "coordinator/core/checkpoints.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/life_cycle.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/recovery/stragglers.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class Reports {
 public:
  Reports(JobTable& jobs, NodeTable& nodes, Scheduler& scheduler, Rendezvous& rendezvous,
          Checkpoints& checkpoints, Failures& failures, Hangs& hangs, Stragglers& stragglers,
          LifeCycle& life_cycle, Context& context)
      : jobs_(jobs),
        nodes_(nodes),
        scheduler_(scheduler),
        rendezvous_(rendezvous),
        checkpoints_(checkpoints),
        failures_(failures),
        hangs_(hangs),
        stragglers_(stragglers),
        life_cycle_(life_cycle),
        context_(context) {}

  // `inventory`: the report is part of a Hello and therefore complete.
  void OnReport(const Node& node, const v1::GenerationReport& report, bool inventory);
  // Logs slots that have become unhealthy, and adds an event to each job with a rank on one of
  // them.
  void OnSlots(const Node& node, const v1::SlotReport& report);
  // Stores the end of the log of a rank that ran on the node. Others are ignored.
  void OnLogTail(const Node& node, const v1::LogTail& tail);

 private:
  void ApplyReport(Job& job, const v1::RankReport& report, bool inventory);
  // Resets the node's failed launches once all its ranks of the generation have started.
  void NoteStarted(const Job& job, const RankState& rank);
  // Counts a rank that could not be started against its node, once per generation.
  void NoteLaunchFailure(const Job& job, const RankState& rank);
  void ReachStep(Job& job, uint64_t step);
  void RecordExit(Job& job, RankState& rank, const v1::RankReport& report);
  // Warns once per node and reason; adds an event with the numbers then, and when the rank exits.
  void RecordLostOutput(Job& job, const RankState& rank, const v1::LostOutput& lost, bool exits);
  void RecordSkippedSteps(Job& job, const v1::Progress& progress);
  // Adds an event for each anomaly that has none; few per generation.
  void RecordLossAnomalies(Job& job, const RankState& rank, const v1::Progress& progress);
  void RecordSummary(Job& job, const v1::TrainSummary& reported);
  // Handles ranks that no longer count: stops them, keeps their slots occupied until they have
  // exited, then lets the worker forget them.
  void OnStrayRanks(const Node& node, const JobId& id, Generation number,
                    const std::vector<const v1::RankReport*>& ranks, bool inventory);

  JobTable& jobs_;
  NodeTable& nodes_;
  Scheduler& scheduler_;
  Rendezvous& rendezvous_;
  Checkpoints& checkpoints_;
  Failures& failures_;
  Hangs& hangs_;
  Stragglers& stragglers_;
  LifeCycle& life_cycle_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_REPORTS_H_
