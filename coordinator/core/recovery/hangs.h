// Detects hangs: a RUNNING generation whose ranks are all silent for the job's hang_timeout, or a
// training of which no rank completes a step.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_HANGS_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_HANGS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hang_suspect.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// Workers report how long each rank has been silent. Of the living generation of each job:
//
//   watched ──all ranks silent for hang_timeout──> inspecting ──all reports, or 4 s──> hung
//      ^────────────────────────── any rank is active again ───────────────────────────┘
//
// The ranks of a train job report each step, and the trainer has a phase for whatever takes longer
// than a step. Without a hang_timeout of its own, such a job is inspected as soon as no rank has
// completed a step for 2.5 s, or for ten times the usual time of a step; failure_timeout, after
// which its ranks give up, is usually longer.
//
// This state is in memory only. After a restart of the coordinator the workers report their ranks'
// silence again, so that a hang is found again within seconds; the job's history prevents a second
// event.
//
// Not thread-safe.
class Hangs {
 public:
  Hangs(JobTable& jobs, NodeTable& nodes, Failures& failures, Context& context)
      : jobs_(jobs), nodes_(nodes), failures_(failures), context_(context) {}

  // Notes the silence in a rank's report, if it has any. The job must have a living generation.
  void NoteReport(Job& job, const RankState& rank, const v1::RankReport& report);
  // A rank of a train job has completed a step, or entered another phase; with `first`, it has
  // reported for the first time since the coordinator started. The job must have a living
  // generation.
  void NoteAdvance(Job& job, bool first);
  // The rank has exited and no longer counts.
  void NoteExit(Job& job, const RankState& rank);
  void NoteInspection(const Node& node, const v1::InspectionReport& report);
  // The job's timer is due. Adds a failure if the job has to be restarted.
  void OnTimer(Job& job);
  // The timer of a train job is due: no rank has advanced.
  void OnStall(Job& job);
  // Sets or cancels the job's timer; called when the job has become RUNNING.
  void Arm(Job& job);
  // The generation is stopping.
  void End(Job& job);

  // The ranks' states as of the latest hang; their stacks are limited in total.
  std::vector<v1::RankInspection> Inspections(const JobId& job) const;

 private:
  struct Watch {
    enum class Phase { kWatched, kInspecting, kHung };
    Phase phase = Phase::kWatched;
    bool announced = false;  // the job's history ends with a hang of this generation
    bool stalled = false;    // found because no rank completed a step
    uint32_t stalls = 0;     // announced since `stalls_since`
    SteadyTime stalls_since = SteadyTime::Infinite();
    std::map<uint32_t, SteadyTime> silent_since;  // by rank
    std::map<uint32_t, v1::RankInspection> inspections;
    std::set<uint32_t> awaited;  // ranks to be inspected
  };

  Watch& WatchOf(const Job& job);
  void OnActive(Job& job, Watch& watch);
  std::string Describe(const Watch& watch, const v1::Hang& hang) const;
  void Inspect(Job& job, Watch& watch);
  void Conclude(Job& job, Watch& watch);
  v1::Hang MakeHang(const Job& job, const Watch& watch) const;

  JobTable& jobs_;
  NodeTable& nodes_;
  Failures& failures_;
  Context& context_;
  std::map<JobId, Watch> watches_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_HANGS_H_
