#include "coordinator/core/jobs/job_record.h"

#include "common/proto_time.h"

namespace muster::core {

v1::JobRecord ToRecord(const Job& job) {
  v1::JobRecord record;
  *record.mutable_job() = job.status;
  record.mutable_job()->clear_progress();
  record.set_queue_sequence(job.queue_sequence);
  record.set_next_event_sequence(job.next_event_sequence);
  if (job.generation_start_time != absl::UnixEpoch()) {
    *record.mutable_generation_start_time() = ToProto(job.generation_start_time);
  }
  if (job.ending.outcome != v1::JOB_STATE_UNSPECIFIED) {
    record.set_outcome(job.ending.outcome);
    record.set_outcome_reason(job.ending.reason);
    record.set_outcome_message(job.ending.message);
    *record.mutable_stop_grace_period() = ToProto(job.ending.grace_period);
    record.set_abort_on_stop(job.ending.abort);
  }
  if (job.suspected_failure.has_value()) {
    *record.mutable_suspected_failure() = *job.suspected_failure;
  }
  record.set_highest_step(job.highest_step);
  record.set_failed_at_step(job.failed_at_step);
  record.set_told_skipped_steps(job.reported_skipped_steps);
  return record;
}

Job FromRecord(const v1::JobRecord& record) {
  Job job;
  job.status = record.job();
  job.queue_sequence = record.queue_sequence();
  job.next_event_sequence = record.next_event_sequence();
  job.generation_start_time = FromProto(record.generation_start_time());
  job.ending = {record.outcome(), record.outcome_reason(), record.outcome_message(),
                FromProto(record.stop_grace_period()), record.abort_on_stop()};
  if (record.has_suspected_failure()) job.suspected_failure = record.suspected_failure();
  job.highest_step = record.highest_step();
  job.failed_at_step = record.failed_at_step();
  job.reported_skipped_steps = record.told_skipped_steps();
  return job;
}

}  // namespace muster::core
