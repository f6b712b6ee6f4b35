#include "cli/follow/checkpoint_wait.h"

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

v1::Job Running(uint64_t step, uint64_t checkpoint) {
  v1::Job job;
  job.set_job_id("job-1");
  job.set_state(v1::RUNNING);
  job.set_generation(2);
  job.mutable_progress()->set_step(step);
  job.mutable_checkpoint()->set_dir("/c");
  job.mutable_checkpoint()->set_step(checkpoint);
  return job;
}

TEST(CheckpointWaitTest, WaitsForTheStepAtTheTimeOfTheRequest) {
  const v1::Job requested = Running(40, 20);
  EXPECT_FALSE(*IsCheckpointWritten(requested, Running(60, 30)));
  EXPECT_TRUE(*IsCheckpointWritten(requested, Running(60, 40)));
  EXPECT_TRUE(*IsCheckpointWritten(requested, Running(60, 41)));
  EXPECT_TRUE(*IsCheckpointWritten(Running(40, 40), Running(40, 40)));
  // Before the first step.
  EXPECT_FALSE(*IsCheckpointWritten(Running(0, 0), Running(0, 0)));
  EXPECT_TRUE(*IsCheckpointWritten(Running(0, 0), Running(3, 2)));
}

TEST(CheckpointWaitTest, FailsWithTheCheckpoint) {
  v1::Job requested = Running(40, 20);
  requested.mutable_checkpoint()->set_failures(1);
  v1::Job now = requested;
  EXPECT_FALSE(*IsCheckpointWritten(requested, now));
  now.mutable_checkpoint()->set_failures(2);
  now.mutable_checkpoint()->set_failed_step(41);
  now.mutable_checkpoint()->set_failure("no space left on device");
  const absl::Status failed = IsCheckpointWritten(requested, now).status();
  EXPECT_EQ(failed,
            absl::AbortedError("the checkpoint of step 41 cannot be written to /c: no space "
                               "left on device"));
}

TEST(CheckpointWaitTest, FailsIfTheTrainingEndsOrRestartsBefore) {
  v1::Job now = Running(40, 20);
  now.set_state(v1::CANCELLED);
  EXPECT_THAT(std::string(IsCheckpointWritten(Running(40, 20), now).status().message()),
              HasSubstr("job job-1 cancelled without a checkpoint of step 40 or later"));
  now = Running(5, 20);
  now.set_generation(3);
  EXPECT_THAT(std::string(IsCheckpointWritten(Running(40, 20), now).status().message()),
              HasSubstr("and started again"));
  // A checkpoint that is written on the way out counts.
  now.mutable_checkpoint()->set_step(44);
  EXPECT_TRUE(*IsCheckpointWritten(Running(40, 20), now));
}

}  // namespace
}  // namespace muster::cli
