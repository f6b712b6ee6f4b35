#include "coordinator/core/jobs/job_record.h"

#include <string>
#include <vector>

#include "common/time/proto_time.h"
#include "coordinator/core/records.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

v1::FirstFailure MakeFailure() {
  v1::FirstFailure failure;
  failure.set_generation(2);
  failure.set_reason("RankKilled");
  failure.set_rank(0);  // set explicitly to the default value
  failure.set_node("node-1");
  failure.add_slots(3);
  failure.set_message("rank 0 on node-1 was killed");
  *failure.mutable_time() = ToProto(absl::FromUnixSeconds(17));
  v1::ExitInfo& exit = *failure.mutable_exit();
  exit.set_exit_code(3);
  exit.set_signal(9);
  exit.set_out_of_memory(true);
  exit.set_stderr_tail("last words");
  exit.set_stopped_by_worker(true);
  *exit.mutable_time() = ToProto(absl::FromUnixSeconds(16));
  exit.mutable_failure()->set_code(4);
  exit.mutable_failure()->set_message("peer lost");
  exit.mutable_failure()->set_phase("step");
  exit.mutable_failure()->set_peer_rank(0);
  exit.mutable_failure()->set_not_retryable(true);
  exit.mutable_failure()->set_step(12);
  return failure;
}

Job MakeJob() {
  Job job;
  v1::Job& status = job.status;
  status.set_job_id("job-1");
  v1::JobSpec spec;
  spec.set_name("job");
  spec.mutable_train()->set_max_steps(7);
  job.SetSpec(spec);
  status.set_state(v1::STOPPING);
  status.set_reason("RankKilled");
  status.set_message("rank 0 was killed");
  status.set_generation(2);
  *status.mutable_submit_time() = ToProto(absl::FromUnixSeconds(11));
  *status.mutable_start_time() = ToProto(absl::FromUnixSeconds(12));
  *status.mutable_finish_time() = ToProto(absl::FromUnixSeconds(19));
  status.set_restarts(4);
  status.set_restarts_used(1);
  status.mutable_progress()->set_step(12);
  status.set_exit_code(137);
  status.set_idempotency_key("key");
  status.set_owner("alice");
  status.set_shared(true);
  *status.mutable_first_failure() = MakeFailure();
  *status.add_past_failures() = v1::FirstFailure();
  *status.add_past_failures() = MakeFailure();
  status.mutable_summary()->set_steps(7);
  status.mutable_summary()->add_losses(0.5f);
  job.summary_parts = 1;
  status.mutable_checkpoint()->set_dir("/shared/job-1");
  status.mutable_checkpoint()->set_shared(true);
  status.add_warnings("rank 0: a warning");
  v1::Straggler& straggler = *status.add_stragglers();
  straggler.set_rank(3);
  straggler.set_node("node-2");
  straggler.set_phase("input");
  straggler.set_slowdown(1.5);
  straggler.set_since_step(7);
  straggler.set_message("rank 3 is slow");
  job.loss_events.set_generation(2);
  job.loss_events.mutable_spikes()->set_count(5);
  job.queue_sequence = 4;
  job.next_event_sequence = 9;
  job.submitted = SteadyTime(absl::Seconds(10));
  job.released = SteadyTime(absl::Seconds(12));
  job.generation_start = SteadyTime(absl::Seconds(13));
  job.finished = SteadyTime(absl::Seconds(14));
  job.ending = {v1::FAILED, "RankKilled", "it was killed", absl::Milliseconds(1500), true};
  job.suspected_failure = MakeFailure();
  job.highest_step = 12;
  job.failed_at_step = 10;
  job.failed_attempts = 3;
  job.not_before = SteadyTime(absl::Seconds(20));
  job.waited = absl::Minutes(7);
  job.queued_since = SteadyTime(absl::Seconds(30));
  job.reported_skipped_steps = 8;
  job.submitted_digest = "digest";
  const Time start{SteadyTime(absl::Seconds(50)), absl::FromUnixSeconds(50)};
  const Time later{SteadyTime(absl::Seconds(65)), absl::FromUnixSeconds(65)};
  job.time_account = TimeAccount(/*counts_steps=*/true, absl::Seconds(3), start);
  job.time_account.BeginGeneration(2, start);
  job.time_account.Enter(v1::TIME_PRODUCTIVE, start);
  job.time_account.ReportStep(7, absl::Seconds(1), later);
  job.time_account.Enter(v1::TIME_RECOVERY, later);
  return job;
}

absl::StatusOr<Job> Read(const v1::JobRecord& record, const Job& job) {
  return FromRecord(record, StoredSpec{job.shared_spec}, job.status.summary().SerializeAsString());
}

TEST(JobRecordTest, JobRoundTrips) {
  const Job job = MakeJob();
  v1::JobRecord record;
  ASSERT_TRUE(record.ParseFromString(ToRecord(job).SerializeAsString()));
  const absl::StatusOr<Job> found = Read(record, job);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->status.DebugString(), job.status.DebugString());
  EXPECT_EQ(found->queue_sequence, job.queue_sequence);
  EXPECT_EQ(found->submitted_digest, job.submitted_digest);
  EXPECT_EQ(found->loss_events.spikes().count(), 5u);
  EXPECT_EQ(found->next_event_sequence, job.next_event_sequence);
  EXPECT_TRUE(found->submitted == job.submitted);
  EXPECT_TRUE(found->released == job.released);
  EXPECT_TRUE(found->generation_start == job.generation_start);
  EXPECT_TRUE(found->finished == job.finished);
  EXPECT_EQ(found->ending.outcome, job.ending.outcome);
  EXPECT_EQ(found->ending.reason, job.ending.reason);
  EXPECT_EQ(found->ending.message, job.ending.message);
  EXPECT_EQ(found->ending.grace_period, job.ending.grace_period);
  EXPECT_EQ(found->ending.abort, job.ending.abort);
  EXPECT_EQ(found->suspected_failure->DebugString(), job.suspected_failure->DebugString());
  EXPECT_EQ(found->highest_step, job.highest_step);
  EXPECT_EQ(found->failed_at_step, job.failed_at_step);
  EXPECT_EQ(found->failed_attempts, job.failed_attempts);
  EXPECT_TRUE(found->not_before == job.not_before);
  EXPECT_EQ(found->waited, job.waited);
  EXPECT_TRUE(found->queued_since == job.queued_since);
  EXPECT_EQ(found->reported_skipped_steps, job.reported_skipped_steps);
  EXPECT_EQ(found->time_account.ToRecord().DebugString(), record.time_account().DebugString());
  EXPECT_EQ(record.time_account().settled_size(), 3);  // unrecorded, productive, checkpoint stall
  EXPECT_TRUE(record.time_account().failing());
}

TEST(JobRecordTest, OlderRecordsHaveDatesOnly) {
  v1::JobRecord record = ToRecord(MakeJob());
  record.clear_submitted();
  record.clear_finished();
  record.mutable_finish_time()->set_seconds(40);
  const absl::StatusOr<Job> found = Read(record, MakeJob());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_TRUE(found->submitted == SteadyTime(absl::Seconds(11)));
  EXPECT_TRUE(found->finished == SteadyTime(absl::Seconds(40)));
}

TEST(JobRecordTest, NewJobHasNoUnsetFields) {
  Job job;
  job.status.set_job_id("job-1");
  job.status.set_state(v1::QUEUED);
  const absl::StatusOr<Job> found = Read(ToRecord(job), job);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->status.has_start_time());
  EXPECT_FALSE(found->status.has_finish_time());
  EXPECT_FALSE(found->status.has_first_failure());
  EXPECT_FALSE(found->status.has_summary());
  EXPECT_FALSE(found->status.has_progress());
  EXPECT_FALSE(found->status.has_checkpoint());
  EXPECT_FALSE(found->suspected_failure.has_value());
  EXPECT_FALSE(found->not_before.has_value());
  EXPECT_EQ(found->ending.outcome, v1::JOB_STATE_UNSPECIFIED);
}

TEST(JobRecordTest, SpecHasRecordsOfItsOwn) {
  Job job = MakeJob();
  v1::JobSpec spec = job.spec();
  spec.add_command(std::string(2 * kPartBytes, 'x'));
  job.SetSpec(spec);
  v1::ArrayValue& value = *job.status.add_array_values();
  value.set_field("train.lr");
  value.set_value("0.1");
  std::vector<store::Mutation> writes;
  WriteSpec(job, writes);
  EXPECT_EQ(job.spec_parts, 3u);
  std::string bytes;
  for (const store::Mutation& write : writes) {
    v1::SpecRecord part;
    ASSERT_TRUE(part.ParseFromString(*write.value));
    EXPECT_EQ(write.key, SpecKey("job-1", part.part()));
    bytes += part.data();
  }
  const v1::JobRecord record = ToRecord(job);
  EXPECT_LT(record.ByteSizeLong(), 4096u);
  const absl::StatusOr<Job> found =
      FromRecord(record, *ReadSpec(record, bytes), job.status.summary().SerializeAsString());
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->spec().DebugString(), job.spec().DebugString());
  EXPECT_EQ(found->status.array_values(0).value(), "0.1");
  EXPECT_EQ(KeysOf(job, /*last_of_array=*/false)[3], "spec/job-1/0002");
}

TEST(JobRecordTest, ReturnsDataLossForDamagedRecord) {
  const Job job = MakeJob();
  const StoredSpec spec{job.shared_spec};
  EXPECT_TRUE(absl::IsDataLoss(ReadSpec(ToRecord(job), "\xff\xff").status()));
  EXPECT_TRUE(absl::IsDataLoss(FromRecord(ToRecord(job), spec, "\xff\xff").status()));
  v1::JobRecord record = ToRecord(job);
  record.set_state(static_cast<v1::StoredState>(99));
  EXPECT_TRUE(absl::IsDataLoss(Read(record, job).status()));
}

TEST(JobRecordTest, EveryStateRoundTrips) {
  for (int state = v1::QUEUED; state <= v1::JobState_MAX; ++state) {
    Job job;
    job.status.set_state(static_cast<v1::JobState>(state));
    const v1::JobRecord record = ToRecord(job);
    EXPECT_EQ(v1::StoredState_Name(record.state()),
              "STORED_" + v1::JobState_Name(static_cast<v1::JobState>(state)));
    EXPECT_EQ(Read(record, job)->state(), state);
  }
}

TEST(JobRecordTest, EventsExitsAndFailuresRoundTrip) {
  v1::JobEvent event;
  event.set_job_id("job-1");
  event.set_sequence(3);
  *event.mutable_time() = ToProto(absl::FromUnixSeconds(5));
  event.set_generation(2);
  event.set_type("Placed");
  event.set_message("generation 2");
  EXPECT_EQ(FromRecord(ToRecord(event)).DebugString(), event.DebugString());
  const v1::FirstFailure failure = MakeFailure();
  EXPECT_EQ(FromRecord(ToRecord(failure)).DebugString(), failure.DebugString());
  EXPECT_EQ(FromRecord(ToRecord(failure.exit())).DebugString(), failure.exit().DebugString());
  EXPECT_EQ(FromRecord(ToRecord(v1::ExitInfo())).DebugString(), v1::ExitInfo().DebugString());
}

}  // namespace
}  // namespace muster::core
