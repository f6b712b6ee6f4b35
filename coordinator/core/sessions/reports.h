// Applies workers' reports about their ranks and slots.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_SESSIONS_REPORTS_H_
#define MUSTER_COORDINATOR_CORE_SESSIONS_REPORTS_H_

#include <vector>

#include "coordinator/core/context.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/lifecycle/generations.h"
#include "coordinator/core/lifecycle/life_cycle.h"
#include "coordinator/core/lifecycle/losses.h"
#include "coordinator/core/nodes/nodes.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/recovery/stragglers.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/scheduler/scheduler.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

class Reports {
 public:
  Reports(Jobs& jobs, Nodes& nodes, Scheduler& scheduler, Rendezvous& rendezvous,
          Failures& failures, Hangs& hangs, Stragglers& stragglers, Generations& generations,
          LifeCycle& life_cycle, Losses& losses, Context& context)
      : jobs_(jobs),
        nodes_(nodes.table),
        health_(nodes.health),
        scheduler_(scheduler),
        rendezvous_(rendezvous),
        failures_(failures),
        hangs_(hangs),
        stragglers_(stragglers),
        generations_(generations),
        life_cycle_(life_cycle),
        losses_(losses),
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
  // Records the status that rank 0 reports. Adds an event if checkpoints could not be written.
  void RecordCheckpoint(Job& job, const v1::CheckpointStatus& reported);
  void NoteCheckpointFailures(Job& job, const v1::CheckpointStatus& before);
  // Warns that only one of several nodes has the checkpoints.
  void NoteCheckpointLocation(Job& job);
  // Handles ranks that no longer count: stops them, keeps their slots occupied until they have
  // exited, then lets the worker forget them.
  void OnStrayRanks(const Node& node, const JobId& id, Generation number,
                    const std::vector<const v1::RankReport*>& ranks, bool inventory);

  Jobs& jobs_;
  NodeTable& nodes_;
  NodeHealth& health_;
  Scheduler& scheduler_;
  Rendezvous& rendezvous_;
  Failures& failures_;
  Hangs& hangs_;
  Stragglers& stragglers_;
  Generations& generations_;
  LifeCycle& life_cycle_;
  Losses& losses_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SESSIONS_REPORTS_H_
