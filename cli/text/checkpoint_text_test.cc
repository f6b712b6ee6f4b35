#include "cli/text/checkpoint_text.h"

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

}  // namespace
}  // namespace muster::cli
