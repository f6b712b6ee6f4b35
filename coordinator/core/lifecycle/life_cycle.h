// Moves jobs through their states: advances, stops, preempts and requeues them. The table of job
// states is in jobs/job.h.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_LIFECYCLE_LIFE_CYCLE_H_
#define MUSTER_COORDINATOR_CORE_LIFECYCLE_LIFE_CYCLE_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/core/actor.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/lifecycle/generations.h"
#include "coordinator/core/lifecycle/growth.h"
#include "coordinator/core/lifecycle/queueing.h"
#include "coordinator/core/recovery/failures.h"
#include "coordinator/core/recovery/hangs.h"
#include "coordinator/core/rendezvous/rendezvous.h"

namespace muster::core {

class LifeCycle {
 public:
  LifeCycle(JobTable& jobs, JobStates& states, Rendezvous& rendezvous, Failures& failures,
            Hangs& hangs, Growth& growth, Generations& generations, Queueing& queueing,
            Context& context)
      : jobs_(jobs),
        states_(states),
        rendezvous_(rendezvous),
        failures_(failures),
        hangs_(hangs),
        growth_(growth),
        generations_(generations),
        queueing_(queueing),
        context_(context) {}

  // Makes the transitions that the ranks' phases, failures and exits call for. Idempotent.
  void Advance(Job& job);
  // Stops the generation, if it is not stopping yet, and queues the job again. This uses up no
  // restart.
  void StopAndRequeue(Job& job, absl::string_view reason, std::string message);
  // As above, for the STARTING and RUNNING jobs with ranks on the node, which is to be drained.
  void MoveJobsAway(const Node& node, const std::string& why);
  // `grace` replaces the spec's grace period; while the job is STOPPING, it may only shorten it.
  void Cancel(Job& job, std::optional<absl::Duration> grace, const Actor& actor);
  // Places queued jobs if capacity has changed, and preempts others for them. A restarting job that
  // does not fit is requeued. Called at the end of a step.
  void RunQueue();
  // Continues a job with a generation that was loaded, or rebuilt from workers' records.
  void Resume(Job& job);

  // ---- Timers. The job has a living generation.
  void OnPhaseTimer(Job& job);
  void OnStopTimer(Job& job);
  void OnTimeLimit(Job& job);
  // Stops a job to grow if nodes are free for it.
  void OnGrowthTimer();

 private:
  // Stops the generation; the job ends when nothing of it is left.
  void Stop(Job& job, Ending ending);
  void CheckStopped(Job& job);
  // Stops the job to make room for `by`, and queues it again. This uses up no restart.
  void Preempt(Job& job, const JobId& by);

  JobTable& jobs_;
  JobStates& states_;
  Rendezvous& rendezvous_;
  Failures& failures_;
  Hangs& hangs_;
  Growth& growth_;
  Generations& generations_;
  Queueing& queueing_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_LIFECYCLE_LIFE_CYCLE_H_
