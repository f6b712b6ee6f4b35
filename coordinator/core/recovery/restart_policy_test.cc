#include "coordinator/core/recovery/restart_policy.h"

#include "coordinator/core/reasons.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kShort = absl::Seconds(5);

Job MakeJob(uint32_t max_restarts) {
  v1::JobSpec spec;
  spec.mutable_restart()->set_max(max_restarts);
  Job job;
  job.SetSpec(spec);
  return job;
}

RestartDecision Fail(Job& job, const char* reason, absl::Duration run_time = kShort) {
  job.status.mutable_first_failure()->set_reason(reason);
  return DecideRestart(job, run_time);
}

TEST(RestartPolicy, ProgramFailuresUseUpRestarts) {
  Job job = MakeJob(2);
  for (const char* reason : {reasons::kRankFailed, reasons::kRankHung}) {
    const RestartDecision decision = Fail(job, reason, absl::Hours(1));
    EXPECT_TRUE(decision.restart) << "no step was completed, however long the program ran";
    EXPECT_EQ(decision.delay, absl::ZeroDuration());
  }
  EXPECT_EQ(job.status.restarts_used(), 2u);
  EXPECT_EQ(Fail(job, reasons::kRankKilled).why_not,
            "no restarts left: 2 restarts without a step in between (restart.max: 2)");
}

TEST(RestartPolicy, DelaysRestartsAfterFailuresSoonAfterStart) {
  Job job = MakeJob(10);
  for (const int seconds : {0, 1, 2, 4, 8}) {
    EXPECT_EQ(Fail(job, reasons::kRankFailed).delay, absl::Seconds(seconds));
  }
  EXPECT_EQ(Fail(job, reasons::kRankFailed, kFirmRun).delay, absl::ZeroDuration());
}

TEST(RestartPolicy, AvoidsNodeThatFailed) {
  Job job = MakeJob(1);
  job.status.set_generation(1);
  v1::FirstFailure& failure = *job.status.mutable_first_failure();
  failure.set_generation(1);
  failure.set_node("a");
  failure.set_reason(reasons::kRankFailed);
  EXPECT_EQ(NodeToAvoid(job), "") << "the program failed";
  failure.set_reason(reasons::kLaunchFailed);
  EXPECT_EQ(NodeToAvoid(job), "a");
  job.status.mutable_checkpoint()->set_node("a");
  job.status.mutable_checkpoint()->set_step(7);
  EXPECT_EQ(NodeToAvoid(job), "") << "the only checkpoint is there";
  job.status.mutable_checkpoint()->set_shared(true);
  EXPECT_EQ(NodeToAvoid(job), "a");
  job.status.set_generation(2);
  EXPECT_EQ(NodeToAvoid(job), "") << "generation 2 did not fail";
}

TEST(RestartPolicy, AddsNothingToFailureOfJobWithoutRestarts) {
  Job job = MakeJob(0);
  const RestartDecision decision = Fail(job, reasons::kRankFailed);
  EXPECT_FALSE(decision.restart);
  EXPECT_EQ(decision.why_not, "");
}

TEST(RestartPolicy, StepBeyondLastFailureGivesRestartsBack) {
  Job job = MakeJob(1);
  EXPECT_FALSE(NoteStep(job, 10));
  EXPECT_TRUE(Fail(job, reasons::kRankFailed).restart);
  EXPECT_FALSE(NoteStep(job, 10)) << "the step at which it failed";
  EXPECT_EQ(job.status.restarts_used(), 1u);
  EXPECT_TRUE(NoteStep(job, 11));
  EXPECT_EQ(job.status.restarts_used(), 0u);
  EXPECT_FALSE(NoteStep(job, 12)) << "nothing left to give back";
  EXPECT_TRUE(Fail(job, reasons::kRankFailed).restart);
  EXPECT_FALSE(Fail(job, reasons::kRankFailed).restart);
}

TEST(RestartPolicy, LostNodesAndFailedLaunchesUseUpNoRestart) {
  Job job = MakeJob(0);
  EXPECT_TRUE(Fail(job, reasons::kNodeLost).restart);
  EXPECT_TRUE(Fail(job, reasons::kLaunchFailed).restart);
  EXPECT_EQ(job.status.restarts_used(), 0u);
}

TEST(RestartPolicy, DelaysFailedAttemptsAndGivesUp) {
  Job job = MakeJob(3);
  std::vector<absl::Duration> delays;
  RestartDecision decision;
  while ((decision = Fail(job, reasons::kLaunchFailed)).restart) delays.push_back(decision.delay);
  std::vector<absl::Duration> expected;
  for (const int seconds : {0, 1, 2, 4, 8, 16, 32, 64, 120}) {
    expected.push_back(absl::Seconds(seconds));
  }
  EXPECT_EQ(delays, expected);
  EXPECT_EQ(delays.size() + 1, kMaxFailedAttempts);
  EXPECT_THAT(decision.why_not, HasSubstr("gave up after 10 attempts in a row"));
}

TEST(RestartPolicy, LongRunOrStepEndsRowOfFailedAttempts) {
  Job job = MakeJob(3);
  for (int i = 0; i < 5; ++i) Fail(job, reasons::kNodeLost);
  EXPECT_EQ(Fail(job, reasons::kNodeLost, kFirmRun).delay, absl::ZeroDuration());
  EXPECT_EQ(job.failed_attempts, 1u);
  for (int i = 0; i < 5; ++i) Fail(job, reasons::kNodeLost);
  NoteStep(job, 1);
  EXPECT_EQ(Fail(job, reasons::kNodeLost).delay, absl::ZeroDuration());
  EXPECT_EQ(Fail(job, reasons::kNodeLost).delay, absl::Seconds(1));
}

TEST(RestartPolicy, DoesNotRepeatFailureThatWouldRecur) {
  for (const char* reason : {reasons::kRankFailed, reasons::kLaunchFailed}) {
    Job job = MakeJob(3);
    job.status.mutable_first_failure()->mutable_exit()->mutable_failure()->set_not_retryable(true);
    const RestartDecision decision = Fail(job, reason);
    EXPECT_FALSE(decision.restart);
    EXPECT_EQ(decision.why_not, "not restarted because the failure would recur");
  }
}

}  // namespace
}  // namespace muster::core
