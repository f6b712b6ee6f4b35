// Conversion between the core's jobs and the store's records of them. The store's messages are
// apart from the public API, so that either can change without the other.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_RECORD_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_RECORD_H_

#include "coordinator/core/jobs/job.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// The job without its generations and events, which have records of their own, and without
// progress, which workers report again.
v1::JobRecord ToRecord(const Job& job);
Job FromRecord(const v1::JobRecord& record);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_RECORD_H_
