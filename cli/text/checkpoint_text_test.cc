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
  EXPECT_EQ(CheckpointText(job), "newest checkpoint: step 60 in /c on node-1");
  job.set_state(v1::SUCCEEDED);
  job.mutable_summary()->set_checkpoint("/c/step-00000080");
  EXPECT_EQ(CheckpointText(job), "checkpoint: /c/step-00000080 on node-1");
  job.mutable_checkpoint()->clear_node();
  job.mutable_checkpoint()->set_shared(true);
  EXPECT_EQ(CheckpointText(job), "checkpoint: /c/step-00000080");
}

TEST(CheckpointTextTest, NamesCheckpointThatIsResumed) {
  v1::Job job = TrainJob();
  EXPECT_EQ(ResumeText(job), "");
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
