// Moves jobs through their states and removes lost nodes: starts, advances, stops, restarts and
// requeues jobs. All state is in the parts. The table of job states is in jobs/job.h.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_LIFE_CYCLE_H_
#define MUSTER_COORDINATOR_CORE_LIFE_CYCLE_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/scheduler/scheduler.h"

namespace muster::core {

class LifeCycle {
 public:
  LifeCycle(JobTable& jobs, NodeTable& nodes, Scheduler& scheduler, Rendezvous& rendezvous,
            Failures& failures, Hangs& hangs, Context& context)
      : jobs_(jobs),
        nodes_(nodes),
        scheduler_(scheduler),
        rendezvous_(rendezvous),
        failures_(failures),
        hangs_(hangs),
        context_(context) {}

  // ---- Jobs
  // Places queued jobs if capacity has changed. A restarting job that does not fit is requeued.
  void RunQueue();
  // Makes the transitions that the ranks' phases, failures and exits call for. Idempotent.
  void Advance(Job& job);
  // Stops the generation, if it is not stopping yet, and queues the job again. This uses up no
  // restart.
  void StopAndRequeue(Job& job, absl::string_view reason, std::string message);
  // `grace` replaces the spec's grace period; while the job is STOPPING, it may only shorten it.
  void Cancel(Job& job, std::optional<absl::Duration> grace, const Actor& actor);
  void Hold(Job& job, const Actor& actor);
  void Release(Job& job, const Actor& actor);
  // Continues a job that was active when the coordinator ended.
  void Resume(Job& job);
  // Sends the message that matches the job's state to the node: Launch, World or StopGeneration.
  void SyncNode(Job& job, uint32_t node_rank, bool launch);

  // ---- Nodes
  // Ends the node's lease and session, and loses its ranks.
  void LoseNode(const NodeName& name, const std::string& why);
  void LoseRank(Job& job, RankState& rank);
  // Loses the nodes whose stream broke if a peer also reported the loss of one of their ranks.
  void LoseAccusedNodes(const Job& job);
  bool HasAccusedRank(const Node& node) const;
  // Stops the jobs with ranks on the node and queues them again.
  void MoveJobsAway(const Node& node, const std::string& why);
  // Aborts the barriers that can never complete, of every job on the node.
  void AbortHopelessBarriers(const NodeName& name);

  void OnTimer(const TimerKey& key);

 private:
  bool TryPlace(Job& job);
  void Start(Job& job, std::vector<v1::NodePlacement> placements);
  void Requeue(Job& job);
  // Stops the generation; the job ends when nothing of it is left.
  void Stop(Job& job, Ending ending);
  void CheckStopped(Job& job);
  // `run_time`: how long the generation that failed was RUNNING.
  void Restart(Job& job, absl::Duration run_time);
  // Keeps the job out of the scheduler's queue for a while.
  void Delay(Job& job, absl::Duration delay);
  void OnDelayEnd(Job& job);
  void RemoveFromQueue(Job& job);
  void Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
              int exit_code);
  void SyncNodes(Job& job, bool launch);
  void ArmTimeLimit(const Job& job);
  void OnTimeLimit(Job& job);

  JobTable& jobs_;
  NodeTable& nodes_;
  Scheduler& scheduler_;
  Rendezvous& rendezvous_;
  Failures& failures_;
  Hangs& hangs_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_LIFE_CYCLE_H_
