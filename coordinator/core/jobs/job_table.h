// The jobs that the coordinator knows, their events, and their changed records.
//
// The table owns every job. The other parts look jobs up here, change them, and
// mark what they have changed, so that a step writes each record at most once.
// Only JobStates changes a job's state.
//
// Not thread-safe.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_TABLE_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/ids.h"
#include "coordinator/core/actor.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/arrays.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/owners/memory_budget.h"
#include "proto/muster/v1/cluster.pb.h"

namespace muster::core {

class JobTable {
 public:
  // `memory` is charged for the specs, events and past generations of the jobs.
  JobTable(MemoryBudget& memory, Context& context) : memory_(memory), context_(context) {}

  // ---- Reading
  Job* Find(const JobId& id);  // null when unknown
  const Job* Find(const JobId& id) const;
  Job& at(const JobId& id) { return jobs_.at(id); }
  const Job& at(const JobId& id) const { return jobs_.at(id); }
  // Errors: NOT_FOUND.
  absl::StatusOr<const Job*> Get(const JobId& id) const;
  const std::map<JobId, Job>& all() const { return jobs_; }
  // Jobs with a living generation.
  const std::set<JobId>& active() const { return active_; }
  // The job if `number` is its living generation and has ranks on the node;
  // null otherwise.
  Job* FindLiving(const JobId& id, uint64_t number, const NodeName& node);
  // The jobs whose living generations have, or had, ranks on the node.
  const std::set<JobId>& ActiveOn(const NodeName& node) const;
  // The state of a job or an array; JOB_STATE_UNSPECIFIED when unknown.
  v1::JobState StateOf(const std::string& id) const;
  const Arrays& arrays() const { return arrays_; }
  Arrays& arrays() { return arrays_; }

  // ---- Changing
  // Adds the job with its array; one without a queue sequence number goes to
  // the end of the queue.
  Job& Add(Job added);
  // Removes the job from memory. Its records are the caller's.
  void Remove(const JobId& id);
  // The job has a living generation from now on.
  void BeginGeneration(Job& job, v1::GenerationRecord record);
  // Moves the living generation, of which no rank is left, to the past ones,
  // and deletes those beyond the number that is kept.
  void EndGeneration(Job& job);
  // Adds an event to the job's history; drops the oldest beyond
  // limits::kEventsPerJob, or kEventsWithoutRoom.
  void AddEvent(Job& job, absl::string_view type, std::string message);
  // Adds a warning about a rank's report, with an event, unless the job has one
  // with the same problem of any rank or as many as it may have.
  void Warn(Job& job, uint32_t rank, const std::string& problem);

  // ---- Records
  void MarkChanged(const Job& job) { records_.MarkChanged(job); }  // for watchers
  void MarkJob(const Job& job) { records_.MarkJob(job); }
  void MarkPlacement(const Job& job, uint32_t node_rank) { records_.MarkPlacement(job, node_rank); }
  // Adds the writes and the changed jobs to the step's effects.
  void WriteChanges() { records_.Write(jobs_, context_); }

 private:
  void AddActive(const Job& job);

  MemoryBudget& memory_;
  Context& context_;
  std::map<JobId, Job> jobs_;
  std::set<JobId> active_;
  std::map<NodeName, std::set<JobId>> active_by_node_;
  Arrays arrays_;
  ChangedRecords records_;
  uint64_t next_queue_sequence_ = 1;
};

// Keeps this number and all below it from later generations of the job, which
// may be unknown: another store may have given them to generations, of which
// workers may hold some.
void ReserveGeneration(JobTable& jobs, const JobId& id, uint64_t generation);

// All jobs that the request selects, newest first. Callers apply its limit,
// page by page.
std::vector<const Job*> ListJobs(const JobTable& jobs, const v1::ListJobsRequest& request);
// The arrays that the request selects.
std::vector<const JobArray*> ListArrays(const JobTable& jobs, const v1::ListJobsRequest& request);

// Digests of the files of all jobs, by owner.
std::map<std::string, absl::flat_hash_set<std::string>> FilesOf(const JobTable& jobs);
// Returns the digests of files of jobs that the actor may use or that are
// shared.
absl::flat_hash_set<std::string> UsableFiles(const JobTable& jobs, const Actor& actor,
                                             const absl::flat_hash_set<std::string>& digests);
// Returns whether a job with a living generation, on the node if there is one,
// names a file with this digest.
bool NeedsFile(const JobTable& jobs, const std::optional<NodeName>& node,
               const std::string& digest);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_TABLE_H_
