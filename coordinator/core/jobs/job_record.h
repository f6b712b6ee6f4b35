// Converts between the core's data and the store's records, and collects the records of jobs that a
// step has changed. The store's messages are separate from the public API, so that each can change
// without the other.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_RECORD_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_RECORD_H_

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/core/context.h"
#include "coordinator/core/jobs/job.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// A job's spec and the values that its array sets in it.
struct StoredSpec {
  spec::SharedSpec spec;
  google::protobuf::RepeatedPtrField<v1::ArrayValue> array_values = {};
};

// Converts a job without its spec, summary, generations and events, which have records of their
// own. Its progress is that of the latest write: progress alone is not written, because workers
// report it again.
v1::JobRecord ToRecord(const Job& job);
// `summary`: a serialized TrainSummary, if the record counts parts of one. Errors: DATA_LOSS when
// it, the checkpoint or a state cannot be parsed.
absl::StatusOr<Job> FromRecord(const v1::JobRecord& record, const StoredSpec& spec,
                               const std::string& summary);
// The spec of the record's job. `bytes`: a serialized SubmittedSpec. Errors: DATA_LOSS.
absl::StatusOr<StoredSpec> ReadSpec(const v1::JobRecord& record, const std::string& bytes);
// Returns the serialized spec. Equal specs have equal bytes.
std::string Serialize(const v1::JobSpec& spec);
// Adds the records of the job's spec, which is written once, to `writes`.
void WriteSpec(Job& job, std::vector<store::Mutation>& writes);

v1::EventRecord ToRecord(const v1::JobEvent& event);
v1::JobEvent FromRecord(const v1::EventRecord& record);

v1::ExitRecord ToRecord(const v1::ExitInfo& exit);
v1::ExitInfo FromRecord(const v1::ExitRecord& record);

v1::FailureRecord ToRecord(const v1::FirstFailure& failure);
v1::FirstFailure FromRecord(const v1::FailureRecord& record);

// Adds the keys of a generation's records.
void AddKeys(const v1::GenerationRecord& record, std::vector<std::string>& keys);
// Returns the keys of a job's records, its own first, without those of Histories and LogTails.
// `last_of_array`: includes those of a spec that it shares.
std::vector<std::string> KeysOf(const Job& job, bool last_of_array);

// The records of jobs that have changed in the current step. Not thread-safe.
class ChangedRecords {
 public:
  void MarkChanged(const Job& job) { changed_.insert(job.id()); }  // for watchers
  void MarkJob(const Job& job);
  void MarkGeneration(const Job& job);  // the living generation, without its nodes
  void MarkPlacement(const Job& job, uint32_t node_rank);
  // The job's own record is no longer written.
  void ForgetJob(const JobId& id) { dirty_jobs_.erase(id); }
  // Adds each marked record once, the summaries that have no records yet, and the changed jobs to
  // the step's effects.
  void Write(std::map<JobId, Job>& jobs, Context& context);

 private:
  std::set<JobId> changed_;
  std::set<JobId> dirty_jobs_;
  std::set<std::pair<JobId, Generation>> dirty_generations_;
  std::set<std::tuple<JobId, Generation, uint32_t>> dirty_placements_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_RECORD_H_
