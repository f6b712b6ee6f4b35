// The lease of a job's ranks on a node: the time without a heartbeat of the node after which they
// are declared lost, so that the job may run elsewhere. Their shims end them before that.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_LEASE_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_LEASE_H_

#include "absl/time/time.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/options.h"

namespace muster::core {

// The lease of a job's next generation: Options::job_lease, or its failure_timeout if longer.
absl::Duration JobLease(const v1::JobSpec& spec, const Options& options);

// The lease of the job's living generation, as recorded when it was placed.
absl::Duration LeaseOf(const Job& job, const Options& options);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_LEASE_H_
