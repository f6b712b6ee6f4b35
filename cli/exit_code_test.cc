#include "cli/exit_code.h"

#include "gtest/gtest.h"

namespace muster::cli {
namespace {

int CodeOfJob(v1::JobState state, int exit_code) {
  v1::Job job;
  job.set_state(state);
  job.set_exit_code(exit_code);
  return ExitCodeOf(job);
}

TEST(ExitCodeTest, ReturnsCodeOfJob) {
  EXPECT_EQ(CodeOfJob(v1::SUCCEEDED, 0), 0);
  EXPECT_EQ(CodeOfJob(v1::FAILED, 7), 7);
  EXPECT_EQ(CodeOfJob(v1::FAILED, 128 + 11), 139);
  EXPECT_EQ(CodeOfJob(v1::TIMED_OUT, 124), 124);
  EXPECT_EQ(CodeOfJob(v1::TIMED_OUT, 0), 124);
}

TEST(ExitCodeTest, ReturnsZeroOnlyOnSuccess) {
  for (const v1::JobState state : {v1::FAILED, v1::CANCELLED, v1::TIMED_OUT, v1::RUNNING}) {
    // A shell would see 256 as 0.
    for (const int code : {0, 256, -1, 512}) EXPECT_NE(CodeOfJob(state, code) & 0xFF, 0);
  }
}

TEST(ExitCodeTest, ReturnsCodeOfFailedCall) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), 0);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), 2);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 69);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("")), 75);
  EXPECT_EQ(ExitCodeOf(absl::PermissionDeniedError("")), 77);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("")), 130);
}

TEST(ExitCodeTest, RecognisesFinishedStates) {
  for (const v1::JobState state : {v1::SUCCEEDED, v1::FAILED, v1::CANCELLED, v1::TIMED_OUT}) {
    EXPECT_TRUE(IsOver(state));
  }
  for (const v1::JobState state :
       {v1::JOB_STATE_UNSPECIFIED, v1::QUEUED, v1::HELD, v1::STARTING, v1::RUNNING, v1::STOPPING}) {
    EXPECT_FALSE(IsOver(state));
  }
}

}  // namespace
}  // namespace muster::cli
