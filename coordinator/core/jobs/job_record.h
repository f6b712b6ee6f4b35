// Converts between the core's data and the store's records. The store's messages are separate from
// the public API, so that each can change without the other.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_RECORD_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_RECORD_H_

#include "absl/status/statusor.h"
#include "coordinator/core/jobs/job.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// Converts a job without its generations and events, which have records of their own. Its progress
// is that of the latest write: progress alone is not written, because workers report it again.
v1::JobRecord ToRecord(const Job& job);
// Errors: DATA_LOSS when the spec, the summary, the checkpoint or a state cannot be parsed.
absl::StatusOr<Job> FromRecord(const v1::JobRecord& record);

v1::EventRecord ToRecord(const v1::JobEvent& event);
v1::JobEvent FromRecord(const v1::EventRecord& record);

v1::ExitRecord ToRecord(const v1::ExitInfo& exit);
v1::ExitInfo FromRecord(const v1::ExitRecord& record);

v1::FailureRecord ToRecord(const v1::FirstFailure& failure);
v1::FirstFailure FromRecord(const v1::FailureRecord& record);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_RECORD_H_
