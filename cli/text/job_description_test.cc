#include "cli/text/job_description.h"

#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

v1::Job FailedJob() {
  v1::Job job;
  job.set_job_id("train-x7k2p");
  job.set_state(v1::FAILED);
  job.set_exit_code(7);
  job.set_generation(2);
  job.set_reason("RankFailed");
  v1::FirstFailure& past = *job.add_past_failures();
  past.set_generation(1);
  past.set_reason("RankFailed");
  past.set_rank(1);
  past.set_node("node-1");
  past.set_message("rank 1 on node-1 exited with code 6: ValueError: a");
  v1::FirstFailure& first = *job.mutable_first_failure();
  first.set_generation(2);
  first.set_reason("RankFailed");
  first.set_rank(0);
  first.set_node("node-2");
  first.set_message("rank 0 on node-2 exited with code 7: ValueError: b");
  *job.add_past_failures() = first;
  job.set_message(first.message() + "; restart limit reached (restart.max: 1)");
  return job;
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(DescriptionTest, ShowsWhenAndWhereTheJobMayRun) {
  v1::Job job;
  job.set_state(v1::QUEUED);
  job.set_array_id("sweep-9qd3a");
  job.set_array_index(3);
  job.set_array_count(12);
  v1::ArrayValue& value = *job.add_array_values();
  value.set_field("env.LR");
  value.set_value("0.1");
  job.set_preemptions(2);
  job.set_estimate_basis("time limits and progress of running jobs");
  *job.mutable_estimated_start_time() = ToProto(kNow + absl::Minutes(4));
  v1::JobSpec& spec = *job.mutable_spec();
  spec.set_priority_class("high");
  spec.mutable_after()->add_ok("prepare-x7k2");
  spec.mutable_after()->add_any("fetch-77aab");
  (*spec.mutable_resources()->mutable_select())["rack"] = "a";
  (*spec.mutable_resources()->mutable_select())["gpu"] = "h100";
  spec.mutable_resources()->add_exclude_nodes("gpu-3");
  spec.mutable_resources()->set_exclusive(true);
  const std::string text = Description(job, kNow);
  EXPECT_THAT(text, HasSubstr("Array:         sweep-9qd3a, task 3 of 12, env.LR=0.1\n"));
  EXPECT_THAT(text, HasSubstr("Starts:        within 4m; from time limits and progress of running "
                              "jobs\n"));
  EXPECT_THAT(text, HasSubstr("Preempted:     2\n"));
  EXPECT_THAT(text, HasSubstr("Class:         high\n"));
  EXPECT_THAT(text, HasSubstr("After:         prepare-x7k2 succeeds; fetch-77aab ends\n"));
  EXPECT_THAT(text,
              HasSubstr("Constraints:   gpu=h100, rack=a; not on gpu-3; without other jobs\n"));
}

TEST(DescriptionTest, ShowsSizeOfElasticJob) {
  v1::Job job;
  job.set_state(v1::RUNNING);
  job.mutable_spec()->mutable_resources()->mutable_nodes()->set_min(1);
  job.mutable_spec()->mutable_resources()->mutable_nodes()->set_max(4);
  job.mutable_spec()->mutable_resources()->set_ranks_per_node(2);
  job.set_world_size(6);
  EXPECT_THAT(Description(job, kNow), HasSubstr("Ranks:         6 of at most 8\n"));
  job.set_world_size(8);
  EXPECT_THAT(Description(job, kNow), HasSubstr("Ranks:         8\n"));
}

TEST(DescriptionTest, ShowsEachFailureOnce) {
  const v1::Job job = FailedJob();
  std::string text = Description(job, kNow);
  EXPECT_THAT(text, HasSubstr("Job:           train-x7k2p\n"));
  EXPECT_THAT(text, HasSubstr("Exit status:   7\n"));
  EXPECT_THAT(text, HasSubstr("Message:       restart limit reached (restart.max: 1)\n"));
  EXPECT_THAT(text, HasSubstr("Failure 1:     RankFailed: rank 1 on node-1 exited with code 6"));
  EXPECT_THAT(text, HasSubstr("First failure: generation 2, RankFailed: rank 0 on node-2 exited"));
  EXPECT_THAT(text, Not(HasSubstr("Failure 2:")));
  std::vector<v1::JobEvent> events(4);
  events[0].set_message(job.past_failures(0).message());
  events[1].set_message(job.first_failure().message());
  events[2].set_message(job.first_failure().message());
  events[3].set_message("FAILED: " + job.message());
  text += EventTable(job, events, kNow);
  EXPECT_EQ(Count(text, "ValueError: a"), 1) << text;
  EXPECT_EQ(Count(text, "ValueError: b"), 1) << text;
  EXPECT_EQ(Count(text, "failure 1 (rank 1 on node-1)\n"), 1) << text;
  EXPECT_EQ(Count(text, "first failure (rank 0 on node-2)\n"), 2) << text;
  EXPECT_THAT(text, HasSubstr("FAILED: first failure (rank 0 on node-2); restart limit reached"));
}

TEST(EventTableTest, TellsEqualFailuresOfGenerationsApart) {
  v1::Job job;
  std::vector<v1::JobEvent> events;
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    v1::FirstFailure& failure = *job.add_past_failures();
    failure.set_generation(generation);
    failure.set_message("no rank had output");  // a hang without a suspect
    v1::JobEvent& event = events.emplace_back();
    event.set_generation(generation);
    event.set_message("no rank had output; restarted");
  }
  *job.mutable_first_failure() = job.past_failures(2);
  const std::string text = EventTable(job, events, kNow);
  EXPECT_THAT(text, HasSubstr(" failure 1; restarted\n"));
  EXPECT_THAT(text, HasSubstr(" failure 2; restarted\n"));
  EXPECT_THAT(text, HasSubstr(" first failure; restarted\n"));
}

TEST(DescriptionTest, CountsFailuresThatAreNoLongerKept) {
  v1::Job job = FailedJob();
  EXPECT_THAT(Description(job, kNow), Not(HasSubstr("Omitted:")));
  job.set_past_failures_omitted(12);
  EXPECT_THAT(Description(job, kNow),
              HasSubstr("Omitted:       12 more failures, between these, are no longer kept\n"));
}

TEST(DescriptionTest, OmitsAMessageThatIsTheFailure) {
  v1::Job job = FailedJob();
  job.set_message(job.first_failure().message());
  EXPECT_THAT(Description(job, kNow), Not(HasSubstr("Message:")));
}

TEST(DescriptionTest, IndentsLinesOfAMessage) {
  v1::Job job;
  job.set_message("node a: NCCL 2.28.9\nnode b: NCCL 2.27.3");
  const std::string text = Description(job, kNow);
  EXPECT_THAT(
      text, HasSubstr("Message:       node a: NCCL 2.28.9\n               node b: NCCL 2.27.3\n"));
  EXPECT_THAT(text, Not(HasSubstr("Exit status")));
}

TEST(DescriptionTest, ListsWarnings) {
  v1::Job job;
  EXPECT_THAT(Description(job, kNow), Not(HasSubstr("Warnings:")));
  job.add_warnings("rank 0: MUSTER_PROGRESS: line 3 is not understood: \"foo\"");
  job.add_warnings("rank 1: progress.epoch is nan; dropped");
  EXPECT_THAT(
      Description(job, kNow),
      HasSubstr("Warnings:      rank 0: MUSTER_PROGRESS: line 3 is not understood: \"foo\"\n"
                "               rank 1: progress.epoch is nan; dropped\n"));
}

TEST(DescriptionTest, ShowsWhatAndWhoseTheJobIs) {
  v1::Job job;
  job.set_owner("ada");
  v1::JobSpec& spec = *job.mutable_spec();
  for (const char* word : {"python3", "train.py", "--tag", "it's a run"}) spec.add_command(word);
  spec.set_workdir("/srv/job");
  (*spec.mutable_env())["TOKEN"] = "secret";
  (*spec.mutable_env())["LR"] = "0.1";
  for (int i = 0; i < 7; ++i) {
    v1::FileSpec& file = *spec.add_files();
    file.set_path("f" + std::to_string(i));
    file.set_size_bytes(1024);
  }
  const std::string text = Description(job, kNow);
  EXPECT_THAT(text, HasSubstr("Owner:         ada\n"));
  EXPECT_THAT(text, HasSubstr("Command:       python3 train.py --tag 'it'\\''s a run'\n"));
  EXPECT_THAT(text, HasSubstr("Workdir:       /srv/job\n"));
  EXPECT_THAT(text, HasSubstr("Env:           LR, TOKEN\n"));
  EXPECT_THAT(text, Not(HasSubstr("secret")));
  EXPECT_THAT(text, HasSubstr("Files:         f0, f1, f2, f3, f4, 2 more (7.0 KiB)\n"));
}

TEST(DescriptionTest, ShowsCheckpointDirectoryOfACommand) {
  v1::Job job;
  job.mutable_spec()->add_command("train");
  EXPECT_THAT(Description(job, kNow), Not(HasSubstr("Checkpoint")));
  v1::CheckpointStatus& checkpoint = *job.mutable_checkpoint();
  checkpoint.set_dir("/data/checkpoint");
  checkpoint.set_node("node-1");
  EXPECT_THAT(Description(job, kNow), HasSubstr("Checkpoint:    /data/checkpoint, on node-1\n"));
  job.mutable_spec()->mutable_resources()->mutable_nodes()->set_max(2);
  EXPECT_THAT(Description(job, kNow),
              HasSubstr("Checkpoint:    /data/checkpoint on node-1; every node has its own "
                        "(MUSTER_CHECKPOINT_SHARED=0)\n"));
  checkpoint.set_shared(true);
  EXPECT_THAT(Description(job, kNow),
              HasSubstr("Checkpoint:    /data/checkpoint, shared by all nodes\n"));
}

TEST(DescriptionTest, ShowsJobThatARestartedJobContinues) {
  v1::Job job;
  job.set_job_id("new-1");
  v1::CheckpointStatus& checkpoint = *job.mutable_checkpoint();
  checkpoint.set_resumed_from("/old/step-00000060.g1");
  checkpoint.set_continued_from("/old/step-00000060.g1");
  checkpoint.set_resumed_step(60);
  checkpoint.set_resumed_job_id("old-1");
  checkpoint.set_continued_job_id("old-1");
  EXPECT_THAT(Description(job, kNow), Not(HasSubstr("Continues")));
  checkpoint.set_resumed_from("/new/step-00000080.g1");
  checkpoint.set_resumed_step(80);
  checkpoint.set_resumed_job_id("new-1");
  EXPECT_THAT(Description(job, kNow),
              HasSubstr("Continues:     /old/step-00000060.g1, of job old-1\n"
                        "Resumed from:  /new/step-00000080.g1, step 80\n"));
  // A generation that has not resumed yet, or that begins at step 0.
  checkpoint.clear_resumed_from();
  EXPECT_THAT(Description(job, kNow), HasSubstr("Continues:     /old/step-00000060.g1, of job"));
}

TEST(DescriptionTest, ShowsCheckpointsAndRestarts) {
  v1::Job job;
  job.mutable_spec()->mutable_train();
  job.set_job_id("new-1");
  job.mutable_spec()->mutable_restart()->set_max(3);
  job.set_restarts(5);
  job.set_restarts_used(1);
  v1::CheckpointStatus& checkpoint = *job.mutable_checkpoint();
  checkpoint.set_dir("/ckpt");
  checkpoint.set_node("node-1");
  std::string text = Description(job, kNow);
  EXPECT_THAT(text, HasSubstr("Checkpoint:    /ckpt, none yet, only on node-1\n"));
  EXPECT_THAT(text,
              HasSubstr("Restarts:      1 of 3 used since the last completed step, 5 in all"));
  EXPECT_THAT(text, Not(HasSubstr("Resumed")));
  checkpoint.set_step(80);
  checkpoint.set_shared(true);
  checkpoint.set_resumed_from("/old/step-00000060.g1");
  checkpoint.set_resumed_step(60);
  checkpoint.set_resumed_job_id("old-1");
  job.set_restarts_used(5);
  text = Description(job, kNow);
  EXPECT_THAT(text,
              HasSubstr("Checkpoint:    /ckpt/step-00000080, step 80, shared by all nodes\n"));
  EXPECT_THAT(text, HasSubstr("Resumed from:  /old/step-00000060.g1, step 60, of job old-1\n"));
  EXPECT_THAT(text, HasSubstr("Restarts:      5 of 3 used\n"));
  job.set_restarts(0);
  job.mutable_spec()->mutable_restart()->set_max(0);
  EXPECT_THAT(Description(job, kNow), HasSubstr("Restarts:      disabled\n"));
}

TEST(DescriptionTest, ShowsBestCheckpointAndFailures) {
  v1::Job job;
  job.mutable_spec()->mutable_train()->mutable_checkpoint()->set_keep_best("test_accuracy");
  v1::CheckpointStatus& checkpoint = *job.mutable_checkpoint();
  checkpoint.set_dir("/ckpt");
  checkpoint.set_shared(true);
  checkpoint.set_step(80);
  checkpoint.set_name("step-00000080.g2");
  checkpoint.set_best_step(60);
  checkpoint.set_best_name("step-00000060.g1");
  checkpoint.set_failures(2);
  checkpoint.set_failed_step(100);
  checkpoint.set_failure("no space left on device");
  EXPECT_THAT(
      Description(job, kNow),
      HasSubstr("Checkpoint:    /ckpt/step-00000080.g2, step 80, shared by all nodes\n"
                "               best by test_accuracy: /ckpt/step-00000060.g1, step 60\n"
                "               2 failed in this generation, the latest at step 100: no space left "
                "on device\n"));
}

TEST(DescriptionTest, ShowsAHangAndTheDuration) {
  v1::Job job;
  *job.mutable_start_time() = ToProto(kNow - absl::Seconds(100));
  *job.mutable_finish_time() = ToProto(kNow - absl::Seconds(40));
  v1::Hang& hang = *job.mutable_hang();
  *hang.mutable_silence() = ToProto(absl::Minutes(10));
  hang.set_suspect_rank(3);
  hang.set_node("node-2");
  hang.set_message("it waits in a futex, the others in a socket");
  const std::string text = Description(job, kNow);
  EXPECT_THAT(text, HasSubstr("Hang:          all ranks silent for 10m; suspect: rank 3 on node-2: "
                              "it waits in a futex, the others in a socket\n"));
  EXPECT_THAT(text, HasSubstr("Duration:      1m\n"));
}

}  // namespace
}  // namespace muster::cli
