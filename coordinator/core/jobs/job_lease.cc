#include "coordinator/core/jobs/job_lease.h"

#include <algorithm>

#include "common/proto_time.h"

namespace muster::core {

absl::Duration JobLease(const v1::JobSpec& spec, const Options& options) {
  return std::max(options.job_lease, FromProto(spec.failure_timeout()));
}

absl::Duration LeaseOf(const Job& job, const Options& options) {
  const v1::GenerationRecord& record = job.generation->record;
  return record.has_job_lease() ? FromProto(record.job_lease()) : JobLease(job.spec(), options);
}

}  // namespace muster::core
