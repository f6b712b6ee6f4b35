// Moves jobs through their states and removes lost nodes: starts, advances, stops, restarts and
// requeues jobs. All state is in the parts. The table of job states is in jobs/job.h.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_LIFE_CYCLE_H_
#define MUSTER_COORDINATOR_CORE_LIFE_CYCLE_H_

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/admission.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/fence.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/recovery/stragglers.h"
#include "coordinator/core/rendezvous/rendezvous.h"
#include "coordinator/core/scheduler/scheduler.h"

namespace muster::core {

class LifeCycle {
 public:
  LifeCycle(JobTable& jobs, NodeTable& nodes, Fence& fence, Scheduler& scheduler,
            Admission& admission, Rendezvous& rendezvous, Failures& failures, Hangs& hangs,
            Stragglers& stragglers, Context& context)
      : jobs_(jobs),
        nodes_(nodes),
        fence_(fence),
        scheduler_(scheduler),
        admission_(admission),
        rendezvous_(rendezvous),
        failures_(failures),
        hangs_(hangs),
        stragglers_(stragglers),
        context_(context) {}

  // ---- Jobs
  // Places queued jobs if capacity has changed, and preempts others for them. A restarting job that
  // does not fit is requeued.
  void RunQueue();
  // Lets jobs join the queue whose dependencies have ended, and ends those that can no longer
  // start.
  void SettleDependencies();
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
  // The rank's processes outlive SIGKILL: the job continues without it, and its slots are not used
  // until it ends.
  void OnUnkillable(Job& job, RankState& rank);
  // Continues a generation that the store has lost, or queues the job again if there is no record.
  // Ends an older generation of the job. `message` is for people.
  void TakeOver(Job& job, std::optional<v1::GenerationRecord> record, std::string message);
  // Sends the message that matches the job's state to the node: Launch, World or StopGeneration.
  void SyncNode(Job& job, uint32_t node_rank, bool launch);

  // ---- Nodes
  // Ends the node's leases and session, and loses its ranks.
  void LoseNode(const NodeName& name, const std::string& why);
  // Loses the ranks of these generations on the node.
  void LosePlaced(const Node& node, const std::vector<std::pair<JobId, Generation>>& generations,
                  const std::string& why);
  // Adds an event to the jobs with ranks on the node, which is SUSPECT.
  void AddSuspectEvents(const Node& node, const std::string& what);
  void LoseRank(Job& job, RankState& rank);
  // Loses the job's ranks on nodes whose stream broke if a rank on another node also reported the
  // loss of one of them: without it, they cannot make progress, even if they still run.
  void LoseAccusedNodes(const Job& job);
  // Stops the jobs with ranks on the node and queues them again.
  void MoveJobsAway(const Node& node, const std::string& why);
  // Kills the ranks of the stopping jobs on the node at its drain deadline, if that is before the
  // end of their grace period.
  void ShortenStops(const Node& node);
  // A member of the fence set has answered: loses the ranks that have ended for certain.
  void OnBansKept(const NodeName& member, const v1::BansKept& kept);
  // Marks the ranks of command jobs on nodes that have not connected yet: they may run without
  // being heard of, because they cannot know this coordinator's address.
  void ExpectReports();
  // The node has reported its ranks.
  void OnReported(const NodeName& name);
  // Aborts the barriers that can never complete, of every job on the node.
  void AbortHopelessBarriers(const NodeName& name);

  void OnTimer(const TimerKey& key);

 private:
  StartResult TryPlace(const StartRequest& request);
  // Stops the job to make room for `by`, and queues it again. This uses up no restart.
  void Preempt(Job& job, const JobId& by);
  std::optional<std::string> FindUnplaceable(const Job& job);
  // `overdue`: see StartRequest.
  void Start(Job& job, std::vector<v1::NodePlacement> placements, bool overdue);
  void Requeue(Job& job);

  // ---- stops.cc
  // Stops the generation; the job ends when nothing of it is left.
  void Stop(Job& job, Ending ending);
  // Starts the grace period.
  void ArmStop(Job& job);
  // The earliest drain deadline of the generation's nodes; infinite without one.
  SteadyTime DrainDeadline(const Job& job) const;
  void SendStop(const Job& job, uint32_t node_rank);
  void OnStopTimer(Job& job);
  void GiveUp(Job& job, RankState& rank, std::string why);
  void CheckStopped(Job& job);
  // Tells the nodes of the newest generation, which has ended, that they may forget it.
  void ForgetNewest(const Job& job);

  // ---- restarts.cc
  // `run_time`: how long the generation that failed was RUNNING.
  void Restart(Job& job, absl::Duration run_time);
  // Keeps the job out of the scheduler's queue for a while.
  void Delay(Job& job, absl::Duration delay);
  void OnDelayEnd(Job& job);

  // ---- growth.cc
  // Called when a generation is RUNNING.
  void BeginGrowthWatch(Job& job);
  // Has running jobs look for further nodes soon, because some may have become free.
  void ArmGrowth();
  void OnGrowthTimer();
  // Stops the job to grow if nodes are free for it.
  bool TryGrow(Job& job);
  // Whether a job is stopping in order to grow.
  bool SomeJobGrows() const;

  // Loses a rank of a generation that a newer one has replaced. It may still run on a connected
  // node: its slots stay occupied until it has exited.
  void Abandon(Job& job, RankState& rank);

  void RemoveFromQueue(Job& job);
  void Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
              int exit_code);
  void SyncNodes(Job& job, bool launch);
  void ArmTimeLimit(const Job& job);
  void OnTimeLimit(Job& job);
  void OnLeaseEnd(const Node& node);
  // Loses the ranks of the jobs whose lease has ended.
  void OnJobLeaseEnd(const Node& node);
  // Whether the job's ranks on a node whose lease has ended cannot run any more, or do no harm.
  bool HaveEnded(const Node& node, const Job& job);
  SteadyTime JobLeaseEnd(const Node& node, const Job& job) const;

  JobTable& jobs_;
  NodeTable& nodes_;
  Fence& fence_;
  Scheduler& scheduler_;
  Admission& admission_;
  Rendezvous& rendezvous_;
  Failures& failures_;
  Hangs& hangs_;
  Stragglers& stragglers_;
  Context& context_;
  std::vector<JobId> restarting_;  // jobs that restart in this step
  std::set<JobId> growable_;       // running jobs that could use further nodes
  uint64_t nodes_version_ = 0;     // as of the last RunQueue
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_LIFE_CYCLE_H_
