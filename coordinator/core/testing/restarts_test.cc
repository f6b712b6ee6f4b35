// Restarts of failed jobs: which failures use them up, delays between attempts, and the bound on
// attempts.
#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"
#include "coordinator/core/recovery/restart_policy.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::ExitWith;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;
using testing::MakeSpec;

v1::ExitInfo FailedLaunch() {
  v1::ExitInfo exit = ExitWith(126);
  exit.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  exit.mutable_failure()->set_message("fork: no more processes");
  return exit;
}

class Restarts : public ::testing::Test {
 protected:
  void SetUp() override { cluster_.Join("a"); }
  void Submit(uint32_t max_restarts, bool command = true) {
    v1::JobSpec spec = command ? MakeCommandSpec(1) : MakeSpec(1);
    spec.mutable_restart()->set_max(max_restarts);
    job_ = cluster_.Submit(spec);
  }
  void ReportStep(uint64_t step) {
    v1::RankReport report = Harness::MakeReport(0, v1::STARTED);
    report.mutable_progress()->set_step(step);
    cluster_.Report("a", job_, report);
  }
  void Exit(int code) { cluster_.ReportExit("a", job_, 0, ExitWith(code)); }
  void FailLaunch() {
    v1::RankReport report;  // without pid: the rank never ran
    report.set_phase(v1::EXITED);
    *report.mutable_exit() = FailedLaunch();
    cluster_.Report("a", job_, report);
    // Forgets the node's failures, which would keep the job from it: see launches_test.
    cluster_.Step(UncordonNode{NodeName("a")});
  }
  void LoseNode() {
    cluster_.Run(absl::Seconds(11));
    cluster_.Join("a", 1, ++incarnation_);
  }
  v1::Job Get() const { return cluster_.Get(job_); }
  v1::JobState State() const { return cluster_.State(job_); }

  Harness cluster_;
  std::string job_;
  uint64_t incarnation_ = 1;
};

TEST_F(Restarts, ExitOfJobWithoutRestartsIsFinal) {
  Submit(0);
  Exit(7);
  EXPECT_EQ(State(), v1::FAILED);
  EXPECT_EQ(Get().exit_code(), 7);
  EXPECT_EQ(Get().reason(), reasons::kRankFailed);
  EXPECT_EQ(Get().message(), "rank 0 on a exited with code 7");
}

TEST_F(Restarts, ExitsUseUpRestartsHoweverTheyDiffer) {
  cluster_.Join("b");
  v1::JobSpec spec = MakeCommandSpec(2);
  spec.mutable_restart()->set_max(2);
  job_ = cluster_.Submit(spec);
  for (const uint32_t failing : {0u, 1u, 0u}) {
    cluster_.Run(absl::Seconds(2), {"a", "b"});
    EXPECT_EQ(State(), v1::STARTING);
    cluster_.ReportExit(failing == 0 ? "a" : "b", job_, failing, ExitWith(3 + failing));
    v1::ExitInfo stopped = testing::KilledBy(15);
    stopped.set_stopped_by_worker(true);
    cluster_.ReportExit(failing == 0 ? "b" : "a", job_, 1 - failing, stopped);
  }
  EXPECT_EQ(State(), v1::FAILED);
  EXPECT_EQ(Get().restarts(), 2u);
  EXPECT_EQ(Get().past_failures_size(), 3);
  EXPECT_THAT(Get().message(), HasSubstr("no restarts left: 2 restarts without a step in between"));
}

TEST_F(Restarts, ExitsSoonAfterStartAreDelayed) {
  Submit(3);
  Exit(3);
  EXPECT_EQ(State(), v1::STARTING) << "at once after the first";
  Exit(3);
  EXPECT_EQ(State(), v1::QUEUED);
  EXPECT_THAT(Get().message(), HasSubstr("exited with code 3; restart 2 of 3 follows after 1s"));
  EXPECT_EQ(Get().waits(0).missing(0).reason(),
            "it failed within 1m of its start and without a step; restart 2 of 3 follows in 1s");
  cluster_.Run(absl::Seconds(2), {"a"});
  ASSERT_EQ(State(), v1::STARTING);
  cluster_.ReportPhase("a", job_, 0, v1::STARTED);
  cluster_.Run(kFirmRun, {"a"});
  Exit(3);
  EXPECT_EQ(State(), v1::STARTING) << "at once after a long run";
}

// A script that reports no steps has all restarts of its spec, however long it runs.
TEST_F(Restarts, ScriptWithoutStepsUsesAllRestarts) {
  Submit(2);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(State(), v1::STARTING) << i;
    cluster_.ReportPhase("a", job_, 0, v1::STARTED);
    cluster_.Run(absl::Hours(1), {"a"});
    Exit(1);
  }
  EXPECT_EQ(State(), v1::FAILED);
  EXPECT_EQ(Get().restarts(), 2u);
}

TEST_F(Restarts, StepsGiveRestartsBackAtOnce) {
  Submit(1);
  for (uint64_t step = 5; step <= 20; step += 5) {
    ReportStep(step);
    EXPECT_EQ(Get().restarts_used(), 0u);
    Exit(3);
    EXPECT_EQ(State(), v1::STARTING);
    EXPECT_EQ(Get().restarts_used(), 1u);
    ReportStep(step);  // it resumes from its checkpoint
    EXPECT_EQ(Get().restarts_used(), 1u);
  }
  EXPECT_EQ(Get().restarts(), 4u) << "the total";
  Exit(3);
  EXPECT_EQ(State(), v1::FAILED);
}

// The worker reads the last lines of a program when it exits.
TEST_F(Restarts, StepsInReportOfExitCount) {
  Submit(1);
  for (uint64_t step = 1; step <= 4; ++step) {
    v1::RankReport report = Harness::MakeReport(0, v1::EXITED);
    report.mutable_progress()->set_step(step);
    *report.mutable_exit() = ExitWith(3);
    cluster_.Report("a", job_, report);
    EXPECT_EQ(State(), v1::STARTING) << step;
  }
}

TEST_F(Restarts, LostNodeUsesUpNoRestart) {
  Submit(0, /*command=*/false);
  cluster_.BringUp(job_);
  cluster_.Run(absl::Seconds(11));
  EXPECT_EQ(State(), v1::QUEUED);
  EXPECT_EQ(Get().reason(), reasons::kNodeLost);
  cluster_.Join("a", 1, 2);
  EXPECT_EQ(State(), v1::STARTING) << "at once after the first loss";
  EXPECT_EQ(Get().restarts(), 1u);
  EXPECT_EQ(Get().restarts_used(), 0u);
}

TEST_F(Restarts, FailedLaunchesAreDelayedAndExplained) {
  Submit(0);
  FailLaunch();
  EXPECT_EQ(State(), v1::STARTING) << "the first is repeated at once";
  FailLaunch();
  EXPECT_EQ(State(), v1::QUEUED);
  EXPECT_EQ(Get().reason(), reasons::kLaunchFailed);
  EXPECT_THAT(Get().message(),
              HasSubstr("fork: no more processes; attempt 3 of 10 follows after 1s"));
  cluster_.Run(absl::Seconds(2), {"a"});
  EXPECT_EQ(State(), v1::STARTING);
  FailLaunch();
  cluster_.Advance(absl::Milliseconds(500));
  const v1::Job delayed = Get();
  EXPECT_EQ(delayed.queue_position(), 0u);
  ASSERT_EQ(delayed.waits_size(), 1);
  EXPECT_EQ(delayed.waits(0).what(), "delay");
  EXPECT_EQ(delayed.waits(0).missing(0).reason(),
            "3 attempts in a row ended with a lost node or a failed launch; attempt 4 of 10 "
            "follows in 2s");
  EXPECT_EQ(FromProto(delayed.estimated_start_time()) - cluster_.now().wall,
            absl::Milliseconds(1500));
}

TEST_F(Restarts, DelayedJobDoesNotBlockOthers) {
  Submit(0);
  FailLaunch();
  FailLaunch();
  const std::string other = cluster_.Submit(MakeCommandSpec(1));
  EXPECT_EQ(cluster_.State(other), v1::STARTING);
  cluster_.Run(absl::Seconds(2), {"a"});
  EXPECT_EQ(State(), v1::QUEUED);
  EXPECT_EQ(Get().queue_position(), 1u);
  EXPECT_THAT(Get().message(), HasSubstr("waiting to restart: needs 1 node"));
}

TEST_F(Restarts, DelaySurvivesCoordinatorRestart) {
  Submit(0);
  for (int i = 0; i < 4; ++i) {
    FailLaunch();
    cluster_.Run(absl::Seconds(2), {"a"});
  }
  ASSERT_EQ(State(), v1::QUEUED);  // for 4 s, of which 2 have passed
  cluster_.Restart();
  cluster_.Join("a");
  cluster_.Run(absl::Seconds(1), {"a"});
  EXPECT_EQ(State(), v1::QUEUED);
  cluster_.Run(absl::Seconds(2), {"a"});
  EXPECT_EQ(State(), v1::STARTING);
  FailLaunch();
  EXPECT_THAT(Get().message(), HasSubstr("attempt 6 of 10 follows after 8s"));
}

TEST_F(Restarts, HoldAndReleaseEndDelay) {
  Submit(0);
  FailLaunch();
  FailLaunch();
  ASSERT_TRUE(cluster_.Hold(job_).ok());
  cluster_.Run(absl::Seconds(5), {"a"});
  EXPECT_EQ(State(), v1::HELD);
  ASSERT_TRUE(cluster_.Release(job_).ok());
  EXPECT_EQ(State(), v1::STARTING);
}

TEST_F(Restarts, DelayedJobCanBeCancelled) {
  Submit(0);
  FailLaunch();
  FailLaunch();
  ASSERT_TRUE(cluster_.Cancel(job_).ok());
  EXPECT_EQ(State(), v1::CANCELLED);
  cluster_.Run(absl::Seconds(5), {"a"});
  EXPECT_EQ(State(), v1::CANCELLED);
}

TEST_F(Restarts, GivesUpAfterManyFailedAttempts) {
  Submit(3);
  for (uint32_t i = 0; i < kMaxFailedAttempts; ++i) {
    ASSERT_EQ(State(), v1::STARTING) << i;
    FailLaunch();
    while (State() == v1::QUEUED) cluster_.Run(absl::Seconds(1), {"a"});
  }
  EXPECT_EQ(State(), v1::FAILED);
  EXPECT_EQ(Get().reason(), reasons::kLaunchFailed);
  EXPECT_EQ(Get().exit_code(), 126);
  EXPECT_THAT(Get().message(), HasSubstr("fork: no more processes; gave up after 10 attempts"));
}

TEST_F(Restarts, RanksThatRanForAWhileEndRowOfAttempts) {
  Submit(0);
  for (uint32_t i = 0; i < 2 * kMaxFailedAttempts; ++i) {
    cluster_.Run(absl::Seconds(2), {"a"});
    ASSERT_EQ(State(), v1::STARTING) << i;
    cluster_.ReportPhase("a", job_, 0, v1::STARTED);
    cluster_.Run(kFirmRun, {"a"});
    LoseNode();
  }
  EXPECT_EQ(Get().restarts_used(), 0u);
}

// Records of coordinators that did not count yet.
TEST_F(Restarts, RecordWithoutCountersStartsAtZero) {
  Submit(1);
  Exit(3);
  v1::JobRecord record;
  ASSERT_TRUE(record.ParseFromString(cluster_.records().at(JobKey(job_))));
  EXPECT_EQ(record.restarts_used(), 1u);
  record.clear_restarts_used();
  record.clear_progress();
  cluster_.PutRecord(JobKey(job_), record.SerializeAsString());
  cluster_.Restart();
  EXPECT_EQ(Get().restarts(), 1u);
  EXPECT_EQ(Get().restarts_used(), 0u);
  cluster_.Join("a");
  Exit(3);
  EXPECT_EQ(State(), v1::STARTING);
  Exit(3);
  EXPECT_EQ(State(), v1::FAILED);
}

}  // namespace
}  // namespace muster::core
