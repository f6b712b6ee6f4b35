#include "cli/follow/follow_printer.h"

#include <sstream>

#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

v1::Job TrainJob() {
  v1::Job job;
  job.set_job_id("next-abcde");
  job.set_state(v1::RUNNING);
  job.mutable_spec()->mutable_train();
  job.mutable_spec()->mutable_resources()->mutable_nodes()->set_max(1);
  job.mutable_checkpoint()->set_dir("/c");
  job.mutable_checkpoint()->set_node("node-1");
  return job;
}

TEST(CheckpointTextTest, NamesNewestCheckpointAndItsNode) {
  v1::Job job = TrainJob();
  EXPECT_EQ(CheckpointText(job), "");
  job.mutable_checkpoint()->set_step(60);
  EXPECT_EQ(CheckpointText(job), "newest checkpoint: step 60, /c/step-00000060 on node-1");
  job.mutable_checkpoint()->set_name("step-00000060.g2");
  EXPECT_EQ(CheckpointText(job), "newest checkpoint: step 60, /c/step-00000060.g2 on node-1");
  job.set_state(v1::SUCCEEDED);
  job.mutable_summary()->set_checkpoint("/c/step-00000080");
  EXPECT_EQ(CheckpointText(job), "checkpoint: /c/step-00000080 on node-1");
  job.mutable_checkpoint()->clear_node();
  job.mutable_checkpoint()->set_shared(true);
  EXPECT_EQ(CheckpointText(job), "checkpoint: /c/step-00000080");
}

TEST(CheckpointTextTest, NamesBestCheckpoint) {
  v1::Job job = TrainJob();
  EXPECT_EQ(BestCheckpointText(job), "");
  job.mutable_spec()->mutable_train()->mutable_checkpoint()->set_keep_best("test_loss");
  job.mutable_checkpoint()->set_best_name("step-00000040.g1");
  job.mutable_checkpoint()->set_best_step(40);
  EXPECT_EQ(BestCheckpointText(job),
            "best checkpoint by test_loss: step 40, /c/step-00000040.g1 on node-1");
}

TEST(CheckpointTextTest, WarnsOfFailures) {
  v1::Job job = TrainJob();
  EXPECT_EQ(CheckpointFailureText(job), "");
  job.mutable_checkpoint()->set_failures(1);
  job.mutable_checkpoint()->set_failed_step(400);
  job.mutable_checkpoint()->set_failure("no space left on device");
  EXPECT_EQ(
      CheckpointFailureText(job),
      "warning: checkpoints: 1 failed in this generation, the latest at step 400: no space left "
      "on device");
}

TEST(CheckpointTextTest, NamesCheckpointThatIsResumed) {
  v1::Job job = TrainJob();
  EXPECT_EQ(ResumeText(job), "");
  job.set_generation(2);
  EXPECT_EQ(ResumeText(job),
            "begins at step 0: there is no checkpoint; set a shorter train.checkpoint.every");
  job.mutable_checkpoint()->set_resumed_from("/other/step-00000060");
  job.mutable_checkpoint()->set_resumed_step(60);
  job.mutable_checkpoint()->set_resumed_job_id("first-x7k2q");
  EXPECT_EQ(ResumeText(job), "resumes from step 60 of job first-x7k2q, /other/step-00000060");
  job.mutable_checkpoint()->set_resumed_job_id("next-abcde");
  EXPECT_EQ(ResumeText(job), "resumes from step 60");
  EXPECT_EQ(ContinuedText(job), "");
  job.mutable_checkpoint()->set_continued_from("/other/step-00000060");
  job.mutable_checkpoint()->set_continued_job_id("first-x7k2q");
  EXPECT_EQ(ContinuedText(job), "continued job first-x7k2q from /other/step-00000060");
}

TEST(CheckpointTextTest, WarnsOnlyIfSeveralNodesDoNotShareTheDirectory) {
  v1::Job job = TrainJob();
  EXPECT_EQ(CheckpointWarning(job), "");
  job.mutable_spec()->mutable_resources()->mutable_nodes()->set_max(2);
  EXPECT_EQ(CheckpointWarning(job),
            "warning: checkpoints are only on node-1; without it a restart begins at step 0; set "
            "train.checkpoint.dir to a directory that all nodes share, or the coordinator's "
            "--checkpoint-dir");
  job.mutable_checkpoint()->set_shared(true);
  EXPECT_EQ(CheckpointWarning(job), "");
}

using ::testing::HasSubstr;

class FollowPrinterTest : public ::testing::Test {
 protected:
  void Show(const v1::Job& job) { printer_.OnJob(job); }
  std::string Taken() {
    const std::string text = err_.str();
    err_.str("");
    return text;
  }
  static v1::Job At(v1::JobState state, uint64_t generation, uint64_t step = 0) {
    v1::Job job;
    job.set_state(state);
    job.set_generation(generation);
    if (step > 0) {
      job.mutable_progress()->set_phase("training");
      job.mutable_progress()->set_step(step);
      job.mutable_progress()->set_loss(0.5);
    }
    return job;
  }

  std::ostringstream out_, err_;
  Console console_{out_, err_, {}};
  SteadyTime now_{absl::Seconds(100)};
  FollowPrinter printer_{console_, [this] { return Time{now_, absl::Now()}; }};
};

TEST_F(FollowPrinterTest, PrintsALinePerState) {
  v1::Job queued = At(v1::QUEUED, 0);
  queued.set_queue_position(2);
  queued.set_reason("WaitingForResources");
  v1::Wait& wait = *queued.add_waits();
  wait.set_what("resources");
  wait.add_missing()->set_node("node-1");
  Show(queued);
  EXPECT_EQ(Taken(), "queued: position 2, WaitingForResources, waiting for resources (node-1)\n");
  // Only what it waits for has changed.
  queued.mutable_waits(0)->mutable_missing(0)->set_node("node-2");
  Show(queued);
  EXPECT_EQ(Taken(), "");
  queued.set_queue_position(1);
  Show(queued);
  EXPECT_THAT(Taken(), HasSubstr("queued: position 1"));
  Show(At(v1::STARTING, 1));
  EXPECT_EQ(Taken(), "starting: generation 1\n");
  Show(At(v1::RUNNING, 1));
  Show(At(v1::RUNNING, 1));
  EXPECT_EQ(Taken(), "running: generation 1\n");
}

TEST_F(FollowPrinterTest, LimitsProgressLinesWithoutATerminal) {
  Show(At(v1::RUNNING, 1));
  Taken();
  Show(At(v1::RUNNING, 1, 1));
  EXPECT_EQ(Taken(), "step 1  loss 0.5000\n");
  now_ = now_ + absl::Milliseconds(1900);
  Show(At(v1::RUNNING, 1, 2));
  EXPECT_EQ(Taken(), "");
  now_ = now_ + absl::Milliseconds(100);
  Show(At(v1::RUNNING, 1, 3));
  EXPECT_EQ(Taken(), "step 3  loss 0.5000\n");
  Show(At(v1::STOPPING, 1, 3));
  EXPECT_EQ(Taken(), "stopping\n");
  Show(At(v1::RUNNING, 1, 3));
  EXPECT_EQ(Taken(), "running: generation 1\n");
  now_ = now_ + absl::Seconds(10);
  Show(At(v1::RUNNING, 1, 3));  // no step since the last line
  EXPECT_EQ(Taken(), "");
  v1::Job evaluating = At(v1::RUNNING, 1, 3);
  evaluating.mutable_progress()->set_phase("evaluating");
  Show(evaluating);
  EXPECT_EQ(Taken(), "evaluating  step 3  loss 0.5000\n");
}

TEST_F(FollowPrinterTest, PrintsCauseOfARestartOnce) {
  Show(At(v1::RUNNING, 1));
  Taken();
  v1::Job stopping = At(v1::STOPPING, 1);
  stopping.set_reason("RankFailed");
  stopping.set_message("rank 1 was killed");
  stopping.mutable_first_failure()->set_generation(1);
  stopping.mutable_first_failure()->set_reason("RankKilled");
  stopping.mutable_first_failure()->set_rank(1);
  stopping.mutable_first_failure()->set_node("node-2");
  stopping.mutable_first_failure()->mutable_exit()->set_signal(9);
  Show(stopping);
  EXPECT_EQ(Taken(), "stopping\n");  // the result would name the cause
  v1::Job starting = At(v1::STARTING, 2);
  *starting.mutable_first_failure() = stopping.first_failure();
  Show(starting);
  EXPECT_EQ(Taken(),
            "failure of generation 1: RankKilled: rank 1 on node-2 killed by SIGKILL\n"
            "starting: generation 2\n");
  starting.set_state(v1::RUNNING);
  Show(starting);
  EXPECT_EQ(Taken(), "running: generation 2\n");
}

TEST_F(FollowPrinterTest, PrintsCauseOfARestartThatWaitsInTheQueue) {
  v1::Job queued = At(v1::QUEUED, 1);
  queued.set_reason("Restarting");
  queued.mutable_first_failure()->set_generation(1);
  queued.mutable_first_failure()->set_reason("NodeLost");
  Show(queued);
  EXPECT_EQ(Taken(), "failure of generation 1: NodeLost\nqueued: Restarting\n");
}

TEST_F(FollowPrinterTest, NamesWhoCancelledOnce) {
  v1::Job job = At(v1::CANCELLED, 1);
  job.set_reason("CancelledByUser");
  job.set_message("cancelled by alice");
  *job.mutable_submit_time() = ToProto(absl::FromUnixSeconds(100));
  *job.mutable_finish_time() = ToProto(absl::FromUnixSeconds(103));
  PrintResult(job, /*quiet_out=*/false, /*output_shown=*/true, console_);
  EXPECT_EQ(Taken(), "cancelled by alice after 3.00 s\n");
}

TEST_F(FollowPrinterTest, PrintsAHangAndItsEndOnce) {
  v1::Job job = At(v1::RUNNING, 1);
  job.set_job_id("train-x7k2q");
  Show(job);
  Taken();
  v1::Job hung = job;
  *hung.mutable_hang()->mutable_silence() = ToProto(absl::Seconds(10));
  hung.mutable_hang()->set_message("rank 3 on node-2 sleeps");
  Show(hung);
  EXPECT_EQ(Taken(),
            "hangs: all ranks silent for 10s: rank 3 on node-2 sleeps; see muster why "
            "train-x7k2q\n");
  hung.mutable_hang()->set_message("rank 3 on node-2 waits in a futex");
  Show(hung);
  EXPECT_EQ(Taken(), "");
  Show(job);
  EXPECT_EQ(Taken(), "hangs no longer: a rank was active again\n");
  Show(job);
  EXPECT_EQ(Taken(), "");
  Show(hung);
  EXPECT_THAT(Taken(), HasSubstr("hangs: "));
  // A restart ends the hang without another line about it.
  job.set_state(v1::STOPPING);
  Show(job);
  EXPECT_EQ(Taken(), "stopping\n");
  Show(At(v1::RUNNING, 2));
  EXPECT_EQ(Taken(), "running: generation 2\n");
}

TEST_F(FollowPrinterTest, PrintsWhatEachGenerationResumesFrom) {
  v1::Job job = At(v1::RUNNING, 1);
  job.set_job_id("next");
  job.mutable_checkpoint()->set_resumed_from("/c/step-00000060");
  job.mutable_checkpoint()->set_resumed_step(60);
  job.mutable_checkpoint()->set_resumed_job_id("first");
  Show(job);
  EXPECT_EQ(Taken(),
            "running: generation 1\nresumes from step 60 of job first, /c/step-00000060\n");
  Show(job);
  EXPECT_EQ(Taken(), "");
  job.set_generation(2);
  job.mutable_checkpoint()->clear_resumed_from();
  Show(job);
  EXPECT_EQ(Taken(), "running: generation 2\n");
  job.mutable_checkpoint()->set_resumed_from("/own/step-00000080");
  job.mutable_checkpoint()->set_resumed_step(80);
  job.mutable_checkpoint()->set_resumed_job_id("next");
  Show(job);
  EXPECT_EQ(Taken(), "resumes from step 80\n");
}

TEST_F(FollowPrinterTest, PrintsCheckpointWithTheResult) {
  v1::Job job = At(v1::SUCCEEDED, 1, 80);
  job.mutable_summary()->set_checkpoint("/c/step-00000080");
  job.mutable_checkpoint()->set_node("node-1");
  PrintResult(job, /*quiet_out=*/true, /*output_shown=*/true, console_);
  EXPECT_THAT(Taken(), HasSubstr("\ncheckpoint: /c/step-00000080 on node-1\n"));
  job.set_state(v1::FAILED);
  job.mutable_checkpoint()->set_dir("/c");
  job.mutable_checkpoint()->set_step(60);
  PrintResult(job, /*quiet_out=*/true, /*output_shown=*/true, console_);
  EXPECT_THAT(Taken(), HasSubstr("newest checkpoint: step 60, /c/step-00000060 on node-1\n"));
}

TEST_F(FollowPrinterTest, PrintsEachErrorOfCheckpointsOnce) {
  v1::Job job = At(v1::RUNNING, 1);
  v1::CheckpointStatus& status = *job.mutable_checkpoint();
  status.set_failures(1);
  status.set_failed_step(10);
  status.set_failure("disk full");
  Show(job);
  EXPECT_THAT(Taken(), HasSubstr("warning: checkpoints: 1 failed in this generation, the latest "
                                 "at step 10: disk full\n"));
  status.set_failures(2);
  status.set_failed_step(20);
  Show(job);
  EXPECT_EQ(Taken(), "");
  job.set_state(v1::SUCCEEDED);
  PrintResult(job, /*quiet_out=*/true, /*output_shown=*/true, console_);
  EXPECT_THAT(Taken(), HasSubstr("2 failed in this generation, the latest at step 20: disk full"));
}

TEST_F(FollowPrinterTest, ReportsCoordinatorUnreachableAndReachable) {
  printer_.OnCoordinatorAway(absl::UnavailableError("x"));
  printer_.OnCoordinatorBack();
  EXPECT_EQ(Taken(), "coordinator unreachable; retrying\ncoordinator reachable again\n");
}

TEST_F(FollowPrinterTest, PrintsTheEndOnlyWithTheResult) {
  v1::Job job = At(v1::SUCCEEDED, 1, 10);
  Show(job);
  EXPECT_EQ(Taken(), "");
  *job.mutable_submit_time() = ToProto(absl::FromUnixSeconds(100));
  *job.mutable_finish_time() = ToProto(absl::FromUnixMillis(163240));
  job.set_restarts(1);
  job.mutable_summary()->set_test_accuracy(0.91234);
  PrintResult(job, /*quiet_out=*/false, /*output_shown=*/false, console_);
  EXPECT_EQ(out_.str(), "test accuracy 0.9123\n");
  EXPECT_THAT(Taken(), HasSubstr("succeeded after 63.2 s, 1 restart\n"));
  PrintResult(job, /*quiet_out=*/true, /*output_shown=*/false, console_);
  EXPECT_EQ(out_.str(), "test accuracy 0.9123\n");  // not printed again
}

TEST_F(FollowPrinterTest, PrintsStderrWithAFailure) {
  v1::Job job = At(v1::FAILED, 1);
  job.set_reason("RankFailed");
  job.mutable_first_failure()->set_reason("RankFailed");
  job.mutable_first_failure()->set_rank(3);
  job.mutable_first_failure()->mutable_exit()->set_exit_code(7);
  job.mutable_first_failure()->mutable_exit()->set_stderr_tail("boom\n");
  PrintResult(job, /*quiet_out=*/false, /*output_shown=*/false, console_);
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(Taken(),
            "failed: RankFailed\n"
            "  RankFailed: rank 3 exited with code 7\n"
            "  last lines of its output:\n"
            "    boom\n");
  // Output that was printed while the job ran is not repeated.
  PrintResult(job, /*quiet_out=*/false, /*output_shown=*/true, console_);
  EXPECT_EQ(Taken(),
            "failed: RankFailed\n"
            "  RankFailed: rank 3 exited with code 7\n");
  // A message that the job's message contains is not repeated.
  job.mutable_first_failure()->clear_exit();
  job.mutable_first_failure()->set_message("rank 3 exited");
  job.set_message("rank 3 exited; no restarts");
  PrintResult(job, /*quiet_out=*/false, /*output_shown=*/false, console_);
  EXPECT_EQ(Taken(), "failed: RankFailed: rank 3 exited; no restarts\n");
}

TEST(FollowPrinterTerminalTest, RedrawsProgress) {
  std::ostringstream out, err;
  Console console(out, err, {.err_is_terminal = true});
  FollowPrinter printer(console);
  v1::Job job;
  job.set_state(v1::RUNNING);
  for (int step = 1; step <= 2; ++step) {
    job.mutable_progress()->set_step(step);
    printer.OnJob(job);
  }
  EXPECT_EQ(err.str(), "running: generation 0\nstep 1\r\x1b[Kstep 2");
  err.str("");
  job.set_state(v1::STOPPING);
  job.set_message("rank 1 exited with code 1");
  printer.OnJob(job);
  EXPECT_EQ(err.str(), "\r\x1b[Kstopping\nrank 1 exited with code 1");
}

TEST(FollowPrinterTerminalTest, ShowsWhatAQueuedJobWaitsFor) {
  std::ostringstream out, err;
  Console console(out, err, {.err_is_terminal = true});
  FollowPrinter printer(console);
  v1::Job job;
  job.set_state(v1::QUEUED);
  printer.OnJob(job);
  job.add_waits()->set_what("one node");
  printer.OnJob(job);
  job.mutable_waits(0)->set_what("one slot");
  printer.OnJob(job);
  EXPECT_EQ(err.str(), "queued\nwaiting for one node\r\x1b[Kwaiting for one slot");
}

}  // namespace

}  // namespace muster::cli
