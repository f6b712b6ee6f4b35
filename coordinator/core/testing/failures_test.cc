// Attribution of the first failure: the cause, not its consequences.
#include <csignal>

#include "coordinator/core/jobs/first_failure.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::ExitWith;
using testing::Harness;
using ::testing::HasSubstr;
using testing::KilledBy;
using testing::MakeSpec;

// ------------------------------------------------------------------------------------------------
// Single functions.

TEST(ExitCode, IsExitCodeOfRank) {
  v1::FirstFailure failure;
  EXPECT_EQ(ExitCodeOf(failure), 1);
  failure.mutable_exit()->set_exit_code(42);
  EXPECT_EQ(ExitCodeOf(failure), 42);
  failure.mutable_exit()->set_exit_code(0);
  failure.mutable_exit()->set_signal(SIGKILL);
  EXPECT_EQ(ExitCodeOf(failure), 137);
}

TEST(ExitCode, MatchesReportOfStoppedRank) {
  v1::FirstFailure failure;
  failure.mutable_exit()->set_signal(SIGTERM);
  failure.mutable_exit()->set_stopped_by_worker(true);
  failure.mutable_exit()->mutable_failure()->set_code(
      static_cast<int>(absl::StatusCode::kNotFound));
  EXPECT_EQ(ExitCodeOf(failure), 66);
  failure.mutable_exit()->mutable_failure()->set_code(
      static_cast<int>(absl::StatusCode::kPermissionDenied));
  EXPECT_EQ(ExitCodeOf(failure), 73);
}

TEST(Reason, FollowsTheExit) {
  v1::ExitInfo exit = ExitWith(3);
  EXPECT_EQ(ReasonOf(exit, true), reasons::kRankFailed);
  EXPECT_EQ(ReasonOf(KilledBy(SIGSEGV), true), reasons::kRankKilled);
  exit = KilledBy(SIGKILL);
  exit.set_out_of_memory(true);
  EXPECT_EQ(ReasonOf(exit, true), reasons::kOutOfMemory);
  exit = v1::ExitInfo();
  exit.mutable_failure()->set_code(5);
  EXPECT_EQ(ReasonOf(exit, false), reasons::kLaunchFailed);
}

TEST(Description, IsOneSentence) {
  v1::ExitInfo exit = ExitWith(3);
  exit.mutable_failure()->set_message("/data: no such directory");
  EXPECT_EQ(Describe(exit, 1, "b", true),
            "rank 1 on b exited with code 3: /data: no such directory");
  EXPECT_EQ(Describe(KilledBy(SIGKILL), 1, "b", true),
            "rank 1 on b was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(Describe(exit, 1, "b", false),
            "rank 1 on b could not be started: /data: no such directory");
}

// --------------------------------------------------------------------------------------------------
// Whole core.

class Attribution : public ::testing::Test {
 protected:
  // A running job with ranks 0, 1 and 2 on nodes a, b and c.
  void SetUp() override {
    for (const char* node : {"a", "b", "c"}) cluster_.Join(node);
    job_ = cluster_.Submit(MakeSpec(3));
    cluster_.BringUp(job_);
  }

  void ReportPeerLost(const std::string& node, uint32_t rank, uint32_t peer,
                      absl::StatusCode code = absl::StatusCode::kUnavailable,
                      const std::string& message = "connection reset") {
    v1::RankReport report = Harness::MakeReport(rank, v1::CONNECTED);
    report.mutable_failure()->set_code(static_cast<int>(code));
    report.mutable_failure()->set_message(message);
    report.mutable_failure()->set_peer_rank(peer);
    cluster_.Report(node, job_, report);
  }
  v1::ExitInfo Stopped() {
    v1::ExitInfo exit = KilledBy(SIGTERM);
    exit.set_stopped_by_worker(true);
    return exit;
  }
  bool IsAttributed() { return cluster_.Get(job_).has_first_failure(); }
  v1::FirstFailure FirstFailure() { return cluster_.Get(job_).first_failure(); }

  Harness cluster_;
  std::string job_;
};

TEST_F(Attribution, LateCauseReplacesItsConsequence) {
  ReportPeerLost("a", 0, 1);
  EXPECT_EQ(cluster_.State(job_), v1::STOPPING) << "stops before the cause is known";
  EXPECT_FALSE(IsAttributed());
  cluster_.Advance(absl::Milliseconds(500));
  cluster_.ReportExit("b", job_, 1, KilledBy(SIGSEGV));
  ASSERT_TRUE(IsAttributed());
  EXPECT_EQ(FirstFailure().rank(), 1u);
  EXPECT_EQ(FirstFailure().reason(), reasons::kRankKilled);
  EXPECT_EQ(cluster_.Get(job_).reason(), reasons::kRankKilled);
}

TEST_F(Attribution, AttributesFailureToHungRankAndNotItsPeers) {
  const absl::StatusCode late = absl::StatusCode::kDeadlineExceeded;
  ReportPeerLost("a", 0, 1, late, "no sign of rank 1 within 4s");
  ReportPeerLost("c", 2, 1, late, "no sign of rank 1 within 4s");
  cluster_.ReportExit("a", job_, 0, Stopped());
  cluster_.ReportExit("c", job_, 2, Stopped());
  EXPECT_FALSE(IsAttributed()) << "rank 1 may still turn out to have died";
  cluster_.Run(absl::Seconds(3), {"a", "b", "c"});
  ASSERT_TRUE(IsAttributed());
  EXPECT_EQ(FirstFailure().reason(), reasons::kRankHung);
  EXPECT_EQ(FirstFailure().rank(), 1u);
  EXPECT_EQ(FirstFailure().node(), "b");
  EXPECT_THAT(FirstFailure().message(), HasSubstr("no sign of rank 1 within 4s"));
  cluster_.ReportExit("b", job_, 1, Stopped());
  EXPECT_EQ(FirstFailure().reason(), reasons::kRankHung)
      << "the exit of the stopped rank does not change the verdict";
  EXPECT_EQ(cluster_.Get(job_).generation(), 2u);
}

TEST_F(Attribution, FollowsAChainOfPeers) {
  ReportPeerLost("c", 2, 1);
  ReportPeerLost("b", 1, 0);
  cluster_.ReportExit("b", job_, 1, Stopped());
  EXPECT_FALSE(IsAttributed());
  cluster_.ReportExit("a", job_, 0, ExitWith(5));
  EXPECT_EQ(FirstFailure().rank(), 0u);
  EXPECT_EQ(FirstFailure().exit().exit_code(), 5);
}

TEST_F(Attribution, FallsBackToFirstReportWithoutCause) {
  ReportPeerLost("a", 0, 1);
  cluster_.Run(absl::Seconds(1), {"a", "b", "c"});
  EXPECT_FALSE(IsAttributed());
  cluster_.Run(absl::Seconds(2), {"a", "b", "c"});
  ASSERT_TRUE(IsAttributed());
  EXPECT_EQ(FirstFailure().rank(), 0u);
  EXPECT_THAT(FirstFailure().message(), HasSubstr("connection reset"));
  // The exit of that rank is added; the attribution itself does not change any more.
  cluster_.ReportExit("b", job_, 1, KilledBy(SIGSEGV));
  EXPECT_EQ(FirstFailure().rank(), 0u);
  cluster_.ReportExit("a", job_, 0, ExitWith(7));
  EXPECT_EQ(FirstFailure().exit().exit_code(), 7);
}

TEST_F(Attribution, IsFinalWhenNoRankIsLeft) {
  ReportPeerLost("a", 0, 1);
  cluster_.ReportExit("a", job_, 0, ExitWith(1));
  cluster_.ReportExit("b", job_, 1, Stopped());
  cluster_.ReportExit("c", job_, 2, Stopped());
  ASSERT_TRUE(IsAttributed());
  EXPECT_EQ(FirstFailure().rank(), 0u);
  EXPECT_EQ(cluster_.Get(job_).generation(), 2u);
}

TEST_F(Attribution, IsRecordedOnce) {
  cluster_.ReportExit("b", job_, 1, ExitWith(3));
  EXPECT_EQ(FirstFailure().rank(), 1u);
  cluster_.ReportExit("a", job_, 0, ExitWith(4));
  EXPECT_EQ(FirstFailure().rank(), 1u);
  EXPECT_EQ(cluster_.Get(job_).past_failures_size(), 1);
}

TEST_F(Attribution, LosesNodeWithBrokenStreamAndAccusedRankAtOnce) {
  cluster_.CloseStream("b");
  EXPECT_EQ(cluster_.StateOf("b"), v1::SUSPECT);
  ReportPeerLost("a", 0, 1);
  EXPECT_EQ(cluster_.StateOf("b"), v1::LOST);
  ASSERT_TRUE(IsAttributed());
  EXPECT_EQ(FirstFailure().reason(), reasons::kNodeLost);
  EXPECT_EQ(FirstFailure().node(), "b");
  EXPECT_FALSE(FirstFailure().has_rank());
}

TEST_F(Attribution, LosesNodeAccusedBeforeItsStreamBroke) {
  ReportPeerLost("a", 0, 1);
  EXPECT_EQ(cluster_.StateOf("b"), v1::READY);
  cluster_.CloseStream("b");
  EXPECT_EQ(cluster_.StateOf("b"), v1::LOST);
  EXPECT_EQ(FirstFailure().reason(), reasons::kNodeLost);
}

TEST_F(Attribution, BrokenStreamAloneDoesNotLoseNode) {
  cluster_.CloseStream("b");
  cluster_.Run(absl::Seconds(9), {"a", "c"});
  EXPECT_EQ(cluster_.State(job_), v1::RUNNING);
  cluster_.Run(absl::Seconds(2), {"a", "c"});
  EXPECT_EQ(cluster_.State(job_), v1::STOPPING);
  EXPECT_EQ(FirstFailure().reason(), reasons::kNodeLost);
}

TEST_F(Attribution, DoesNotLoseNodesThatHaveNotReconnectedAfterRestart) {
  cluster_.Restart();
  v1::RankReport report = Harness::MakeReport(0, v1::CONNECTED);
  report.mutable_failure()->set_peer_rank(1);
  report.mutable_failure()->set_code(14);
  v1::Hello hello = cluster_.MakeHello("a", 1);
  *hello.add_inventory() = cluster_.MakeInventory(job_, {report});
  cluster_.Open(hello);
  EXPECT_EQ(cluster_.StateOf("b"), v1::SUSPECT);
  v1::RankReport exited = Harness::MakeReport(1, v1::EXITED);
  *exited.mutable_exit() = KilledBy(SIGKILL);
  hello = cluster_.MakeHello("b", 1);
  *hello.add_inventory() = cluster_.MakeInventory(job_, {exited});
  cluster_.Open(hello);
  EXPECT_EQ(FirstFailure().rank(), 1u);
  EXPECT_EQ(FirstFailure().reason(), reasons::kRankKilled);
}

TEST_F(Attribution, SurvivesCoordinatorRestart) {
  ReportPeerLost("a", 0, 1);
  cluster_.Restart();
  EXPECT_FALSE(IsAttributed());
  v1::RankReport exited = Harness::MakeReport(1, v1::EXITED);
  *exited.mutable_exit() = KilledBy(SIGKILL);
  v1::Hello hello = cluster_.MakeHello("b", 1);
  *hello.add_inventory() = cluster_.MakeInventory(job_, {exited});
  cluster_.Open(hello);
  ASSERT_TRUE(IsAttributed());
  EXPECT_EQ(FirstFailure().rank(), 1u);
}

TEST_F(Attribution, ExitAfterPeerReportIsAConsequence) {
  v1::ExitInfo exit = ExitWith(1);
  exit.mutable_failure()->set_peer_rank(2);
  exit.mutable_failure()->set_code(14);
  cluster_.ReportExit("a", job_, 0, exit);
  EXPECT_FALSE(IsAttributed());
  cluster_.ReportExit("c", job_, 2, ExitWith(9));
  EXPECT_EQ(FirstFailure().rank(), 2u);
}

TEST_F(Attribution, RankStoppedByItsWorkerHasNotFailed) {
  cluster_.ReportExit("a", job_, 0, Stopped());
  const v1::Job stopping = cluster_.Get(job_);
  EXPECT_EQ(stopping.state(), v1::STOPPING);
  EXPECT_EQ(stopping.reason(), reasons::kNodeDrained);
  EXPECT_THAT(stopping.message(), HasSubstr("rank 0 on a was stopped by its worker"));
  cluster_.ReportExit("b", job_, 1, ExitWith(1));
  cluster_.ReportExit("c", job_, 2, KilledBy(SIGTERM));
  const v1::Job again = cluster_.Get(job_);
  EXPECT_EQ(again.generation(), 2u);
  EXPECT_EQ(again.restarts(), 0u);
  EXPECT_FALSE(again.has_first_failure());
}

TEST_F(Attribution, RankThatFailedAndWasThenStoppedHasFailed) {
  v1::ExitInfo exit = Stopped();
  exit.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kInternal));
  exit.mutable_failure()->set_message("loss is not a number");
  cluster_.ReportExit("a", job_, 0, exit);
  EXPECT_THAT(FirstFailure().message(), HasSubstr("loss is not a number"));
}

TEST(LaunchFailure, EndsJobWithReason) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  v1::RankReport report;
  report.set_rank(0);
  report.set_phase(v1::EXITED);
  report.mutable_exit()->mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kNotFound));
  report.mutable_exit()->mutable_failure()->set_message("no such program: /bin/nope");
  report.mutable_exit()->mutable_failure()->set_not_retryable(true);
  cluster.Report("a", job, report);
  const v1::Job failed = cluster.Get(job);
  EXPECT_EQ(failed.state(), v1::FAILED);
  EXPECT_EQ(failed.first_failure().reason(), reasons::kLaunchFailed);
  EXPECT_THAT(failed.message(), HasSubstr("rank 0 on a could not be started: no such program"));
}

}  // namespace
}  // namespace muster::core
