// Moves jobs into the queue and out of it: they enter, are held, released or placed, restart or are
// requeued after a generation, and finish.
//
// A job joins the scheduler's queue when the jobs that it depends on have ended and its array may
// run another task.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_LIFECYCLE_QUEUEING_H_
#define MUSTER_COORDINATOR_CORE_LIFECYCLE_QUEUEING_H_

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "coordinator/core/actor.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/lifecycle/generations.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/scheduler/scheduler.h"

namespace muster::core {

class Queueing {
 public:
  Queueing(JobTable& jobs, JobStates& states, NodeTable& nodes, Scheduler& scheduler,
           Generations& generations, Context& context)
      : jobs_(jobs),
        states_(states),
        nodes_(nodes),
        scheduler_(scheduler),
        generations_(generations),
        context_(context) {}

  // Adds the job, which is QUEUED, to the scheduler's queue if it may start. Otherwise the job
  // joins later, and its reason says what it waits for.
  void Enter(Job& job);
  // Removes the job from the queue, and ends its delay. Another task of its array may join.
  void Leave(Job& job);
  void Hold(Job& job, const Actor& actor);
  void Release(Job& job, const Actor& actor);
  // Moves the job to the state in which it ends, from any other one.
  void Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
              int exit_code);
  // The job's generation has ended, after it was RUNNING for `run_time`: restarts, requeues or
  // finishes the job as `job.ending` says.
  void Conclude(Job& job, absl::Duration run_time);
  // The delay of a restart is over.
  void OnDelayEnd(Job& job);
  // Lets jobs join the queue whose dependencies have ended, and ends those that can no longer
  // start.
  void SettleDependencies();

  // ---- Placement, at the end of a turn
  // Returns whether a job whose generation has ended restarts at once. The decision must then be
  // made in this step.
  bool SomeJobRestarts() const { return !restarting_.empty(); }
  // Starts the queued jobs that fit, if capacity has changed. Returns the preemptions that make
  // room for others; nullopt if no decision was due.
  std::optional<std::vector<Preemption>> PlaceQueued();
  // No further decision is due. Requeues the restarting jobs that did not fit, and marks jobs whose
  // reason not to fit has changed: a part of them, with the rest in the next turns, because they
  // may be the whole queue.
  void FinishPlacement();

 private:
  void Restart(Job& job, absl::Duration run_time);
  // Keeps the job out of the scheduler's queue for a while.
  void Delay(Job& job, absl::Duration delay);
  // Adds the job to the queue, from which it is placed at the end of this step if it fits.
  void RestartNow(Job& job);
  void Requeue(Job& job);
  // Tells the nodes of the newest generation, which has ended, that they may forget it.
  void ForgetNewest(const Job& job);
  // See ShapeTable::Check. `all_known`: see AllKnownAt; set when it is first needed.
  std::optional<std::string> FindUnplaceable(const Job& job, std::optional<SteadyTime>& all_known);
  StartResult TryPlace(const StartRequest& request);

  JobTable& jobs_;
  JobStates& states_;
  NodeTable& nodes_;
  Scheduler& scheduler_;
  Generations& generations_;
  Context& context_;
  std::deque<JobId> changed_reasons_;  // of jobs that are to be marked
  std::vector<JobId> restarting_;      // jobs that restart in this step
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_LIFECYCLE_QUEUEING_H_
