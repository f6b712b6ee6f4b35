#include "coordinator/core/jobs/job_record.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/records.h"
#include "coordinator/core/steady_clock.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace muster::core {
namespace {

// Job states have the same numbers in the store and in the API.
static_assert(static_cast<int>(v1::STORED_QUEUED) == v1::QUEUED);
static_assert(static_cast<int>(v1::STORED_HELD) == v1::HELD);
static_assert(static_cast<int>(v1::STORED_STARTING) == v1::STARTING);
static_assert(static_cast<int>(v1::STORED_RUNNING) == v1::RUNNING);
static_assert(static_cast<int>(v1::STORED_STOPPING) == v1::STOPPING);
static_assert(static_cast<int>(v1::STORED_SUCCEEDED) == v1::SUCCEEDED);
static_assert(static_cast<int>(v1::STORED_FAILED) == v1::FAILED);
static_assert(static_cast<int>(v1::STORED_CANCELLED) == v1::CANCELLED);
static_assert(static_cast<int>(v1::STORED_TIMED_OUT) == v1::TIMED_OUT);
static_assert(v1::StoredState_MAX == static_cast<int>(v1::JobState_MAX));

constexpr int kStoredStragglers = 512;

v1::StoredState ToStored(v1::JobState state) { return static_cast<v1::StoredState>(state); }
v1::JobState FromStored(v1::StoredState state) { return static_cast<v1::JobState>(state); }

template <typename Report, typename Other>
void CopyReport(const Other& from, Report& to) {
  to.set_code(from.code());
  to.set_message(from.message());
  to.set_phase(from.phase());
  if (from.has_peer_rank()) to.set_peer_rank(from.peer_rank());
  to.set_not_retryable(from.not_retryable());
  to.set_step(from.step());
}

template <typename Exit, typename Other>
void CopyExit(const Other& from, Exit& to) {
  to.set_exit_code(from.exit_code());
  to.set_signal(from.signal());
  to.set_out_of_memory(from.out_of_memory());
  to.set_stderr_tail(from.stderr_tail());
  if (from.has_failure()) CopyReport(from.failure(), *to.mutable_failure());
  to.set_stopped_by_worker(from.stopped_by_worker());
  to.set_lease_expired(from.lease_expired());
  if (from.has_time()) *to.mutable_time() = from.time();
}

template <typename Failure, typename Other>
void CopyFailure(const Other& from, Failure& to) {
  to.set_generation(from.generation());
  to.set_reason(from.reason());
  if (from.has_rank()) to.set_rank(from.rank());
  to.set_node(from.node());
  *to.mutable_slots() = from.slots();
  if (from.has_exit()) CopyExit(from.exit(), *to.mutable_exit());
  to.set_message(from.message());
  if (from.has_time()) *to.mutable_time() = from.time();
}

template <typename Event, typename Other>
void CopyEvent(const Other& from, Event& to) {
  to.set_job_id(from.job_id());
  to.set_sequence(from.sequence());
  if (from.has_time()) *to.mutable_time() = from.time();
  to.set_generation(from.generation());
  to.set_type(from.type());
  to.set_message(from.message());
}

template <typename Values, typename Other>
void CopyValues(const Other& from, Values& to) {
  for (const auto& value : from) {
    auto& copy = *to.Add();
    copy.set_field(value.field());
    copy.set_value(value.value());
  }
}

template <typename Stragglers, typename Other>
void CopyStragglers(const Other& from, Stragglers& to) {
  for (const auto& straggler : from) {
    if (to.size() >= kStoredStragglers) return;  // further ones are detected again
    auto& copy = *to.Add();
    copy.set_rank(straggler.rank());
    copy.set_node(straggler.node());
    copy.set_phase(straggler.phase());
    copy.set_slowdown(straggler.slowdown());
    copy.set_since_step(straggler.since_step());
    copy.set_message(straggler.message());
  }
}

// Copies the fields that a job's status and its record have in common.
template <typename Status, typename Other>
void CopyStatus(const Other& from, Status& to) {
  to.set_job_id(from.job_id());
  to.set_reason(from.reason());
  to.set_message(from.message());
  to.set_generation(from.generation());
  if (from.has_submit_time()) *to.mutable_submit_time() = from.submit_time();
  if (from.has_start_time()) *to.mutable_start_time() = from.start_time();
  if (from.has_finish_time()) *to.mutable_finish_time() = from.finish_time();
  to.set_restarts(from.restarts());
  to.set_restarts_used(from.restarts_used());
  to.set_exit_code(from.exit_code());
  to.set_idempotency_key(from.idempotency_key());
  to.set_owner(from.owner());
  to.set_shared(from.shared());
  if (from.has_first_failure()) CopyFailure(from.first_failure(), *to.mutable_first_failure());
  for (const auto& failure : from.past_failures()) CopyFailure(failure, *to.add_past_failures());
  to.set_past_failures_omitted(from.past_failures_omitted());
  *to.mutable_warnings() = from.warnings();
  CopyStragglers(from.stragglers(), *to.mutable_stragglers());
}

// Returns the id under which the job's spec is stored.
const std::string& SpecId(const Job& job) {
  return job.shares_spec ? job.status.array_id() : job.status.job_id();
}

// Writes the job's summary once it has been reported; deletes that of an earlier generation.
void WriteSummary(Job& job, std::vector<store::Mutation>& writes) {
  if (job.status.has_summary() == (job.summary_parts > 0)) return;
  for (uint32_t part = 0; part < job.summary_parts; ++part) {
    writes.push_back({SummaryKey(job.status.job_id(), part), std::nullopt});
  }
  job.summary_parts = 0;
  if (!job.status.has_summary()) return;
  job.summary_parts = PutParts<v1::SummaryRecord>(job.status.job_id(),
                                                  job.status.summary().SerializeAsString(), writes);
}

absl::Status Unreadable(const v1::JobRecord& record, const char* what) {
  return absl::DataLossError(
      absl::StrCat("the record of job ", record.job_id(), " has an unreadable ", what));
}

}  // namespace

v1::JobRecord ToRecord(const Job& job) {
  v1::JobRecord record;
  CopyStatus(job.status, record);
  record.set_state(ToStored(job.state()));
  record.set_spec_parts(job.spec_parts);
  record.set_shares_spec(job.shares_spec);
  record.set_summary_parts(job.summary_parts);
  if (job.status.has_progress()) record.set_progress(job.status.progress().SerializeAsString());
  if (job.status.has_checkpoint()) {
    record.set_checkpoint(job.status.checkpoint().SerializeAsString());
  }
  record.set_queue_sequence(job.queue_sequence);
  record.set_next_event_sequence(job.next_event_sequence);
  *record.mutable_submitted() = ToStored(job.submitted);
  if (job.released > SteadyTime()) *record.mutable_released() = ToStored(job.released);
  if (job.finished > SteadyTime()) *record.mutable_finished() = ToStored(job.finished);
  if (job.generation_start > SteadyTime()) {
    *record.mutable_generation_start_time() = ToStored(job.generation_start);
  }
  if (job.ending.outcome != v1::JOB_STATE_UNSPECIFIED) {
    record.set_outcome(ToStored(job.ending.outcome));
    record.set_outcome_reason(job.ending.reason);
    record.set_outcome_message(job.ending.message);
    *record.mutable_stop_grace_period() = ToProto(job.ending.grace_period);
    record.set_abort_on_stop(job.ending.abort);
  }
  if (job.suspected_failure.has_value()) {
    CopyFailure(*job.suspected_failure, *record.mutable_suspected_failure());
  }
  record.set_highest_step(job.highest_step);
  record.set_failed_at_step(job.failed_at_step);
  record.set_failed_attempts(job.failed_attempts);
  *record.mutable_run_time() = ToProto(job.run_time);
  *record.mutable_waited() = ToProto(job.waited);
  if (job.queued_since.has_value()) *record.mutable_queued_since() = ToStored(*job.queued_since);
  if (job.not_before.has_value()) *record.mutable_not_before() = ToStored(*job.not_before);
  record.set_highest_generation(job.highest_generation);
  record.set_told_skipped_steps(job.reported_skipped_steps);
  if (job.loss_events.generation() > 0) *record.mutable_loss_events() = job.loss_events;
  record.set_submitted_digest(job.submitted_digest);
  *record.mutable_time_account() = job.time_account.ToRecord();
  record.set_preemptions(job.status.preemptions());
  record.set_preempted(job.preempted);
  record.set_array_id(job.status.array_id());
  record.set_array_index(job.status.array_index());
  record.set_array_count(job.status.array_count());
  record.set_array_concurrency(job.array_concurrency);
  record.mutable_after_ok()->Assign(job.after.ok.begin(), job.after.ok.end());
  record.mutable_after_failed()->Assign(job.after.failed.begin(), job.after.failed.end());
  record.mutable_after_any()->Assign(job.after.any.begin(), job.after.any.end());
  return record;
}

std::string Serialize(const v1::JobSpec& spec) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  spec.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

void WriteSpec(Job& job, std::vector<store::Mutation>& writes) {
  v1::SubmittedSpec submitted;
  submitted.set_spec(Serialize(job.spec()));
  CopyValues(job.status.array_values(), *submitted.mutable_array_values());
  job.spec_parts = PutParts<v1::SpecRecord>(SpecId(job), submitted.SerializeAsString(), writes);
}

absl::StatusOr<StoredSpec> ReadSpec(const v1::JobRecord& record, const std::string& bytes) {
  v1::SubmittedSpec submitted;
  v1::JobSpec spec;
  if (!submitted.ParseFromString(bytes) || !spec.ParseFromString(submitted.spec())) {
    return Unreadable(record, "spec");
  }
  StoredSpec read{std::make_shared<const v1::JobSpec>(std::move(spec))};
  CopyValues(submitted.array_values(), read.array_values);
  return read;
}

absl::StatusOr<Job> FromRecord(const v1::JobRecord& record, const StoredSpec& spec,
                               const std::string& summary) {
  Job job;
  CopyStatus(record, job.status);
  if (!v1::StoredState_IsValid(record.state()) || !v1::StoredState_IsValid(record.outcome())) {
    return Unreadable(record, "state");
  }
  job.status.set_state(FromStored(record.state()));
  job.shared_spec = spec.spec;
  *job.status.mutable_array_values() = spec.array_values;
  job.spec_parts = record.spec_parts();
  job.shares_spec = record.shares_spec();
  job.summary_parts = record.summary_parts();
  if (job.summary_parts > 0 && !job.status.mutable_summary()->ParseFromString(summary)) {
    return Unreadable(record, "summary");
  }
  if (record.has_progress() && !job.status.mutable_progress()->ParseFromString(record.progress())) {
    return Unreadable(record, "progress");
  }
  if (record.has_checkpoint() &&
      !job.status.mutable_checkpoint()->ParseFromString(record.checkpoint())) {
    return Unreadable(record, "checkpoint");
  }
  job.queue_sequence = record.queue_sequence();
  job.next_event_sequence = record.next_event_sequence();
  job.submitted = FromStored(record.has_submitted() ? record.submitted() : record.submit_time());
  job.released = FromStored(record.released());
  job.finished = FromStored(record.has_finished() ? record.finished() : record.finish_time());
  job.generation_start = FromStored(record.generation_start_time());
  job.ending = {FromStored(record.outcome()), record.outcome_reason(), record.outcome_message(),
                FromProto(record.stop_grace_period()), record.abort_on_stop()};
  if (record.has_suspected_failure()) {
    CopyFailure(record.suspected_failure(), job.suspected_failure.emplace());
  }
  job.highest_step = record.highest_step();
  job.failed_at_step = record.failed_at_step();
  job.failed_attempts = record.failed_attempts();
  job.run_time = FromProto(record.run_time());
  job.waited = FromProto(record.waited());
  if (record.has_queued_since()) job.queued_since = FromStored(record.queued_since());
  if (record.has_not_before()) job.not_before = FromStored(record.not_before());
  job.highest_generation = record.highest_generation();
  job.reported_skipped_steps = record.told_skipped_steps();
  job.loss_events = record.loss_events();
  job.submitted_digest = record.submitted_digest();
  if (record.has_time_account()) {
    job.time_account = TimeAccount(record.time_account(), job.is_train());
  }
  job.status.set_preemptions(record.preemptions());
  job.preempted = record.preempted();
  job.status.set_array_id(record.array_id());
  job.status.set_array_index(record.array_index());
  job.status.set_array_count(record.array_count());
  job.array_concurrency = record.array_concurrency();
  job.after.ok.assign(record.after_ok().begin(), record.after_ok().end());
  job.after.failed.assign(record.after_failed().begin(), record.after_failed().end());
  job.after.any.assign(record.after_any().begin(), record.after_any().end());
  return job;
}

v1::EventRecord ToRecord(const v1::JobEvent& event) {
  v1::EventRecord record;
  CopyEvent(event, *record.mutable_event());
  return record;
}

v1::JobEvent FromRecord(const v1::EventRecord& record) {
  v1::JobEvent event;
  CopyEvent(record.event(), event);
  return event;
}

v1::ExitRecord ToRecord(const v1::ExitInfo& exit) {
  v1::ExitRecord record;
  CopyExit(exit, record);
  return record;
}

v1::ExitInfo FromRecord(const v1::ExitRecord& record) {
  v1::ExitInfo exit;
  CopyExit(record, exit);
  return exit;
}

v1::FailureRecord ToRecord(const v1::FirstFailure& failure) {
  v1::FailureRecord record;
  CopyFailure(failure, record);
  return record;
}

v1::FirstFailure FromRecord(const v1::FailureRecord& record) {
  v1::FirstFailure failure;
  CopyFailure(record, failure);
  return failure;
}

void AddKeys(const v1::GenerationRecord& record, std::vector<std::string>& keys) {
  keys.push_back(GenerationKey(record.job_id(), record.generation()));
  for (int node_rank = 0; node_rank < record.nodes_size(); ++node_rank) {
    keys.push_back(PlacementKey(record.job_id(), record.generation(), node_rank));
  }
}

std::vector<std::string> KeysOf(const Job& job, bool last_of_array) {
  const std::string& id = job.status.job_id();
  std::vector<std::string> keys = {JobKey(id)};
  for (uint32_t part = 0; part < job.spec_parts && (last_of_array || !job.shares_spec); ++part) {
    keys.push_back(SpecKey(SpecId(job), part));
  }
  for (uint32_t part = 0; part < job.summary_parts; ++part) keys.push_back(SummaryKey(id, part));
  for (const auto& [number, record] : job.past) AddKeys(record, keys);
  for (const v1::JobEvent& event : job.events) keys.push_back(EventKey(id, event.sequence()));
  return keys;
}

void ChangedRecords::MarkJob(const Job& job) {
  dirty_jobs_.insert(job.id());
  MarkChanged(job);
}

void ChangedRecords::MarkGeneration(const Job& job) {
  dirty_generations_.emplace(job.id(), job.generation->number());
  MarkChanged(job);
}

void ChangedRecords::MarkPlacement(const Job& job, uint32_t node_rank) {
  dirty_placements_.emplace(job.id(), job.generation->number(), node_rank);
  MarkChanged(job);
}

void ChangedRecords::Write(std::map<JobId, Job>& jobs, Context& context) {
  std::vector<store::Mutation>& writes = context.effects.writes;
  for (const JobId& id : std::exchange(dirty_jobs_, {})) {
    Job& job = jobs.at(id);
    job.time_account.MarkWritten(context.now.steady);
    WriteSummary(job, writes);
    writes.push_back(Put(ToRecord(job)));
  }
  for (const auto& [id, number] : std::exchange(dirty_generations_, {})) {
    writes.push_back(PutGeneration(*jobs.at(id).FindRecord(number)));
  }
  for (const auto& [id, number, node_rank] : std::exchange(dirty_placements_, {})) {
    writes.push_back(PutPlacement(*jobs.at(id).FindRecord(number), node_rank));
  }
  context.effects.changed_jobs.assign(changed_.begin(), changed_.end());
  changed_.clear();
}

}  // namespace muster::core
