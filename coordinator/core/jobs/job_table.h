// All jobs that the coordinator knows, with their states, histories and records.
//
// The table owns every job. The other parts look jobs up here and change them; they mark what they
// changed, so that a step writes each record at most once. Only Transition changes a job's state,
// and it ends the process on a transition that job.h does not allow.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_TABLE_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "coordinator/core/context.h"
#include "coordinator/core/event.h"
#include "coordinator/core/jobs/arrays.h"
#include "coordinator/core/jobs/dependencies.h"
#include "coordinator/core/jobs/histories.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/jobs/log_tails.h"
#include "coordinator/core/jobs/retention.h"
#include "coordinator/core/owners/memory_budget.h"
#include "coordinator/core/owners/owner_table.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::core {

class JobTable {
 public:
  explicit JobTable(Context& context)
      : context_(context),
        owners_(context),
        memory_(context.options.job_memory),
        log_tails_(context),
        histories_(context),
        retention_(context.options.keep_jobs, context.options.keep_jobs_for) {}

  // ---- Reading
  Job* Find(const JobId& id);  // null when unknown
  const Job* Find(const JobId& id) const;
  Job& at(const JobId& id) { return jobs_.at(id); }
  const Job& at(const JobId& id) const { return jobs_.at(id); }
  // Jobs with a living generation.
  const std::set<JobId>& active() const { return active_; }
  // The job if `number` is its living generation and has ranks on the node; null otherwise.
  Job* FindLiving(const JobId& id, uint64_t number, const NodeName& node);
  // Returns whether a living generation has, or had, ranks on the node.
  bool UsesNode(const NodeName& node) const;
  // Resolves a job id, the name of one job only, the name of one array only with a task's index
  // ("sweep-3"), or a unique prefix of an id, in this order. Errors: NOT_FOUND, INVALID_ARGUMENT
  // with the matching jobs when ambiguous, or when the name is that of an array.
  absl::StatusOr<JobId> Resolve(absl::string_view name) const;
  // As Resolve, for an array.
  absl::StatusOr<std::string> ResolveArray(absl::string_view name) const;
  // Errors: NOT_FOUND.
  absl::StatusOr<const Job*> Get(const JobId& id) const;
  // All jobs that the request selects, newest first. Callers apply its limit, page by page.
  std::vector<const Job*> List(const v1::ListJobsRequest& request) const;
  // Of a job or an array; JOB_STATE_UNSPECIFIED when unknown.
  v1::JobState StateOf(const std::string& id) const;
  const Arrays& arrays() const { return arrays_; }
  Arrays& arrays() { return arrays_; }
  // The arrays that the request selects.
  std::vector<const JobArray*> ListArrays(const v1::ListJobsRequest& request) const;
  // Digests of the files of all jobs.
  absl::flat_hash_set<std::string> Files() const;
  // Returns the digests of files of jobs that the actor may use or that are shared.
  absl::flat_hash_set<std::string> UsableFiles(
      const Actor& actor, const absl::flat_hash_set<std::string>& digests) const;
  // Whether a job with a living generation, on the node if there is one, names a file with this
  // digest.
  bool NeedsFile(const std::optional<NodeName>& node, const std::string& digest) const;
  LogTails& log_tails() { return log_tails_; }
  const LogTails& log_tails() const { return log_tails_; }
  Histories& histories() { return histories_; }
  const Histories& histories() const { return histories_; }
  OwnerTable& owners() { return owners_; }
  const OwnerTable& owners() const { return owners_; }
  // Specs, events and past generations of all jobs, and what the other parts add.
  MemoryBudget& memory() { return memory_; }
  const MemoryBudget& memory() const { return memory_; }

  // ---- Life cycle
  struct Submitted {
    Job* job = nullptr;            // of an array, its first task
    bool already_existed = false;  // an earlier submission had the same idempotency key
  };
  // Adds a job, or the tasks of an array, in state QUEUED. Errors: INVALID_ARGUMENT, NOT_FOUND when
  // a job of spec.after is unknown, ABORTED when the id is taken, ALREADY_EXISTS when the owner
  // used the idempotency key with another spec, those of CheckSubmit, RESOURCE_EXHAUSTED.
  absl::StatusOr<Submitted> Submit(const SubmitJob& event);
  // Whether the actor may submit this job or, if there are tasks, these. Errors: those of
  // OwnerTable::CheckSubmit; PERMISSION_DENIED if a path is that of checkpoints of another owner's
  // job, unless an admin has shared that job and the path is only read.
  absl::Status CheckSubmit(const v1::JobSpec& spec, const std::vector<ArrayTask>& tasks,
                           const Actor& actor) const;
  void Transition(Job& job, v1::JobState to, absl::string_view reason, std::string message);
  void SetReason(Job& job, absl::string_view reason, std::string message);
  // Keeps this number and all below it from later generations of the job, which may be unknown:
  // another store may have given them to generations, of which workers may hold some.
  void ReserveGeneration(const JobId& id, uint64_t generation);
  // Starts the next generation and clears what the previous one left in the job's status.
  void BeginGeneration(Job& job, v1::GenerationRecord record);
  // Moves the living generation, of which no rank is left, to the past ones.
  void EndGeneration(Job& job);
  void Finish(Job& job, v1::JobState state, absl::string_view reason, std::string message,
              int exit_code);
  // Adds an event to the job's history; drops the oldest beyond limits::kEventsPerJob, or
  // kEventsWithoutRoom.
  void AddEvent(Job& job, absl::string_view type, std::string message);

  // Charges the job's time until now, as the job's state and the progress of its ranks require.
  // Called after reports of its ranks; the methods above call it themselves.
  void UpdateTimeAccount(Job& job);

  // Adds a warning about what a rank reported, with an event, unless the job has one with the same
  // problem of any rank or as many as it may have.
  void Warn(Job& job, uint32_t rank, const std::string& problem);

  // ---- Dependencies
  // The jobs and arrays that have ended since the last call, or had when a job was submitted that
  // depends on them.
  std::vector<Ended> TakeEnded() { return std::exchange(ended_, {}); }
  bool HasEnded() const { return !ended_.empty(); }
  Dependents& dependents() { return dependents_; }
  // The job no longer waits for others. Only jobs that are QUEUED or HELD have dependencies.
  void DropDependencies(Job& job);
  // Resolves the names in a spec; adds to `ended` the jobs and arrays that have ended already.
  // Errors: as Resolve, with the path of the field.
  absl::StatusOr<After> ResolveDependencies(const v1::Dependencies& given,
                                            std::vector<Ended>& ended) const;

  // ---- Records
  void MarkChanged(const Job& job) { changed_.insert(job.id()); }  // for watchers
  void MarkJob(const Job& job);
  void MarkGeneration(const Job& job);  // the living generation, without its nodes
  void MarkPlacement(const Job& job, uint32_t node_rank);
  Job& Restore(Job job);
  // Called after the last Restore of a start.
  void FinishRestore();
  // Adds a job that the store has lost, at the end of the queue's order.
  Job& AddRecovered(Job job);
  void RestoreForgotten(const JobId& id, std::vector<std::string> keys) {
    retention_.AddForgotten(id, std::move(keys));
  }
  // Adds the writes and the changed jobs to the step's effects.
  void WriteChanges();

  // The slots that no other job can use because of the generation.
  static SlotCount CountSlots(const v1::GenerationRecord& record);

  // ---- Retention
  bool IsForgotten(const JobId& id) const { return retention_.IsForgotten(id); }
  // Deletes finished jobs, first of the owner, until the owner may use `bytes` more memory. Errors:
  // RESOURCE_EXHAUSTED.
  absl::Status MakeMemory(const std::string& owner, size_t bytes);
  // Removes a finished job from memory; its records are deleted over the following steps.
  void Remove(const JobId& id);
  // Deletes finished jobs that are due, a bounded number of records per step.
  void ForgetDue();
  // Sets the timer for the next ForgetDue.
  void ArmRetention();

  // The job or array that a name refers to.
  struct Match {
    std::string id;
    bool is_array = false;
    uint64_t queue_sequence = 0;
  };

 private:
  // The jobs and arrays that may be meant by an id, a name or the beginning of an id.
  std::vector<Match> MatchesOf(const std::string& given) const;
  absl::StatusOr<Match> ResolveAny(absl::string_view name) const;
  absl::Status CheckIds(const SubmitJob& event) const;
  // Deletes finished jobs until there is room for `count` more.
  absl::Status MakeRoom(size_t count);
  void Charge(Job& job, size_t bytes);
  void Discharge(Job& job, size_t bytes);
  // Whether the owner has memory, and the store space, for what is not needed to run the job.
  bool HasRoom(const Job& job) const;
  void DropOldestEvent(Job& job);
  Job& AddSubmitted(const SubmitJob& event, const JobId& id, const v1::JobSpec& spec,
                    size_t memory_bytes);
  // The node that is to blame for the failure of the living generation; nullopt if there is none.
  static std::optional<std::string> LostNode(const Job& job);
  // Deletes the records of past generations in the middle if there are more than are kept, and of
  // all but the newest without room.
  void DropGenerations(Job& job);
  // Opens an account for a job of a store that has none for it, or continues the stored one.
  void RestoreTimeAccount(Job& job);
  // Adds the time that has been settled to the cluster's totals.
  void CountSettledTime(Job& job);
  // Lets the finished job be deleted when it is due.
  void AllowDeletion(Job& job, SteadyTime order);
  void AllowDeletion(const JobArray& array);

  const v1::GenerationRecord& RecordOf(const JobId& id, Generation number) const {
    return *jobs_.at(id).FindRecord(number);
  }

  Context& context_;
  std::map<JobId, Job> jobs_;
  std::set<JobId> active_;
  OwnerTable owners_;
  MemoryBudget memory_;
  std::map<std::pair<std::string, std::string>, JobId> idempotency_keys_;  // by owner and key
  LogTails log_tails_;
  Histories histories_;
  Retention retention_;
  Arrays arrays_;
  Dependents dependents_;
  std::vector<Ended> ended_;
  uint64_t next_queue_sequence_ = 1;
  // Changes of the current step.
  std::set<JobId> changed_;
  std::set<JobId> dirty_jobs_;
  std::set<std::pair<JobId, Generation>> dirty_generations_;
  std::set<std::tuple<JobId, Generation, uint32_t>> dirty_placements_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_TABLE_H_
