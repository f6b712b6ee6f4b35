// Changes the states of jobs, and what follows from each change: time accounts, the owner's use,
// dependencies and retention.
//
// Only Transition changes a job's state; it ends the process on a transition that job.h does not
// allow. Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_STATES_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_STATES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/dependencies.h"
#include "coordinator/core/jobs/histories.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/jobs/retention.h"
#include "coordinator/core/owners/owner_table.h"

namespace muster::core {

class JobStates {
 public:
  JobStates(JobTable& jobs, OwnerTable& owners, Histories& histories, Eviction& eviction,
            Context& context)
      : jobs_(jobs),
        owners_(owners),
        histories_(histories),
        eviction_(eviction),
        context_(context) {}

  void Transition(Job& job, v1::JobState to, absl::string_view reason, std::string message);
  void SetReason(Job& job, absl::string_view reason, std::string message);
  // Starts the next generation and clears what the previous one left in the job's status.
  void BeginGeneration(Job& job, v1::GenerationRecord record);
  // Moves the living generation, of which no rank is left, to the past ones.
  void EndGeneration(Job& job);
  void Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
              int exit_code);

  // ---- Jobs that are added to the table
  // Called for each job that has been added. `ended`: jobs and arrays that it depends on and that
  // have ended.
  void OnAdded(const Job& job, const std::vector<Ended>& ended = {});
  // Called after the last job of the store has been added.
  void FinishRestore();

  // ---- Dependencies
  // The jobs and arrays that have ended since the last call, or had when a job was submitted that
  // depends on them.
  std::vector<Ended> TakeEnded() { return std::exchange(ended_, {}); }
  bool HasEnded() const { return !ended_.empty(); }
  Dependents& dependents() { return dependents_; }
  // The job no longer waits for others. Only jobs that are QUEUED or HELD have dependencies.
  void DropDependencies(Job& job);

 private:
  JobTable& jobs_;
  OwnerTable& owners_;
  Histories& histories_;
  Eviction& eviction_;
  Context& context_;
  Dependents dependents_;
  std::vector<Ended> ended_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_STATES_H_
