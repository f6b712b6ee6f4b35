#include "coordinator/core/jobs/job.h"

#include "common/time/proto_time.h"

namespace muster::core {

bool IsAllowed(v1::JobState from, v1::JobState to) {
  switch (from) {
    case v1::QUEUED:
      return to == v1::HELD || to == v1::STARTING || to == v1::CANCELLED || to == v1::FAILED;
    case v1::HELD:
      return to == v1::QUEUED || to == v1::CANCELLED || to == v1::FAILED;
    case v1::STARTING:
      return to == v1::RUNNING || to == v1::STOPPING;
    case v1::RUNNING:
      return to == v1::STOPPING;
    case v1::STOPPING:
      return to == v1::STARTING || to == v1::QUEUED || IsTerminal(to);
    default:
      return false;
  }
}

bool IsTerminal(v1::JobState state) {
  return state == v1::SUCCEEDED || state == v1::FAILED || state == v1::CANCELLED ||
         state == v1::TIMED_OUT;
}

bool IsActive(v1::JobState state) {
  return state == v1::STARTING || state == v1::RUNNING || state == v1::STOPPING;
}

std::optional<SteadyTime> Job::TimeLimitEnd() const {
  if (!spec().has_time_limit()) return std::nullopt;
  return generation_start + (FromProto(spec().time_limit()) - run_time);
}

const v1::GenerationRecord* Job::FindRecord(Generation number) const {
  if (generation.has_value() && generation->number() == number) return &generation->record;
  const auto entry = past.find(number);
  return entry == past.end() ? nullptr : &entry->second;
}

size_t MemoryOf(const v1::JobSpec& spec, size_t sharing) {
  return sizeof(Job) + spec.SpaceUsedLong() / sharing;
}

absl::Duration JobLease(const v1::JobSpec& spec, const Options& options) {
  return std::max(options.job_lease, FromProto(spec.failure_timeout()));
}

absl::Duration LeaseOf(const Job& job, const Options& options) {
  const v1::GenerationRecord& record = job.generation->record;
  return record.has_job_lease() ? FromProto(record.job_lease()) : JobLease(job.spec(), options);
}

}  // namespace muster::core
