// Adds jobs to the table: those that clients submit, and those of the store and of workers.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_SUBMISSION_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_SUBMISSION_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "coordinator/core/jobs/job_names.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/jobs/retention.h"
#include "coordinator/core/owners/owner_table.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// The paths in specs under which other jobs may have checkpoints. Decides whether an actor may use
// the checkpoints that specs name: a directory of several jobs is open to the owner of any of them.
// Symbolic links are not followed: permissions of the file system protect their targets.
class CheckpointPaths {
 public:
  void Add(const v1::JobSpec& spec);
  bool empty() const { return paths_.empty(); }
  // Compares the paths with those of a job that exists.
  void Meet(const Job& job, const Actor& actor);
  // PERMISSION_DENIED if a path is only that of jobs that Meet has found not to be the actor's.
  absl::Status Check() const;

 private:
  struct Use {
    const char* field;
    bool writes;
    bool allowed = false;
    std::string job;  // of another owner, with checkpoints at the path
    std::string owner;
  };
  void AddPath(const char* field, const std::string& path, bool writes);

  std::map<std::string, Use> paths_;  // by path
};

class JobSubmission {
 public:
  JobSubmission(JobTable& jobs, JobNames& names, OwnerTable& owners, Eviction& eviction,
                JobStates& states, Context& context)
      : jobs_(jobs),
        names_(names),
        owners_(owners),
        eviction_(eviction),
        states_(states),
        context_(context) {}

  struct Submitted {
    Job* job = nullptr;            // of an array, its first task
    bool already_existed = false;  // an earlier submission had the same idempotency key
  };
  // Adds a job, or the tasks of an array, in state QUEUED. Errors: INVALID_ARGUMENT, NOT_FOUND when
  // a job of spec.after is unknown, ABORTED when the id is taken, ALREADY_EXISTS when the owner
  // used the idempotency key with another spec or for a job that was deleted to make room,
  // PERMISSION_DENIED if a path is that of checkpoints of another owner's job, unless an admin has
  // shared that job and the path is only read, RESOURCE_EXHAUSTED, those of
  // OwnerTable::CheckSubmit.
  absl::StatusOr<Submitted> Submit(const SubmitJob& event);
  // The error that Submit would return. Changes nothing.
  absl::Status CheckSubmit(const SubmitJob& event) const { return Examine(event).status(); }
  // Adds a job of the store, with its generations and events.
  Job& Restore(Job job);
  // Adds a job that the store has lost, at the end of the queue's order.
  Job& AddRecovered(Job job);

 private:
  // Everything that a submission refers to, looked up.
  struct Needs {
    std::optional<JobId> existing;  // the job of the idempotency key; the rest is then not set
    After after;
    std::vector<Ended> ended;
    size_t jobs = 0;
    size_t memory_bytes = 0;
    uint64_t stored = 0;       // bytes of the specs' records
    bool shares_spec = false;  // all tasks have the same one
  };
  absl::StatusOr<Needs> Examine(const SubmitJob& event) const;
  absl::Status CheckActor(const SubmitJob& event) const;
  absl::Status CheckIds(const SubmitJob& event) const;
  // Returns the job with this id and spec, which is not in the table yet.
  Job MakeJob(const SubmitJob& event, const JobId& id, spec::SharedSpec spec) const;

  JobTable& jobs_;
  JobNames& names_;
  OwnerTable& owners_;
  Eviction& eviction_;
  JobStates& states_;
  Context& context_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_SUBMISSION_H_
