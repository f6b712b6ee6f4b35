// Nodes on which launches fail are left out for a while.
#include "common/time/proto_time.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::ExitWith;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;

class Launches : public ::testing::Test {
 protected:
  // The rank's worker could not start it; `lasting`: nor could another one.
  void FailLaunch(const std::string& job, uint32_t rank = 0, bool lasting = false) {
    v1::RankReport report;  // without pid: the rank never ran
    report.set_rank(rank);
    report.set_phase(v1::EXITED);
    *report.mutable_exit() = ExitWith(126);
    v1::FailureReport& failure = *report.mutable_exit()->mutable_failure();
    failure.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    failure.set_message("no space left on device");
    failure.set_not_retryable(lasting);
    cluster_.Report(NodeOf(job), job, report);
  }
  std::string NodeOf(const std::string& job) const { return cluster_.Get(job).ranks(0).node(); }
  std::string Submit() { return cluster_.Submit(MakeCommandSpec(1)); }
  // Two launches in a row fail on node a.
  void FailTwiceOnA() {
    cluster_.Join("a");
    const std::string job = Submit();
    FailLaunch(job);
    FailLaunch(job);
    ASSERT_TRUE(cluster_.Cancel(job).ok());
  }
  absl::Duration CoolDown() const { return FromProto(cluster_.GetNode("a").cool_down()); }

  Harness cluster_;
};

TEST_F(Launches, JobRestartsOnAnotherNode) {
  cluster_.Join("a", 2);
  cluster_.Join("b", 2);
  const std::string job = Submit();
  ASSERT_EQ(NodeOf(job), "a");
  FailLaunch(job);
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
  EXPECT_EQ(NodeOf(job), "b");
  EXPECT_EQ(cluster_.GetNode("a").failed_launches(), 1u);
  EXPECT_EQ(NodeOf(Submit()), "b") << "node b has not failed";
  EXPECT_EQ(NodeOf(Submit()), "a") << "node b is full";
}

// A node with a full disk does not drain the queue into FAILED.
TEST_F(Launches, NodeThatFailsRepeatedlyIsLeftOut) {
  cluster_.Join("a");
  cluster_.Join("b");
  const std::string first = Submit();
  ASSERT_EQ(NodeOf(first), "a");
  FailLaunch(first);
  ASSERT_EQ(NodeOf(first), "b");
  cluster_.ReportPhase("b", first, 0, v1::STARTED);
  const std::string second = Submit();
  ASSERT_EQ(NodeOf(second), "a");
  FailLaunch(second);
  const v1::Node node = cluster_.GetNode("a");
  EXPECT_EQ(node.failed_launches(), 2u);
  EXPECT_EQ(FromProto(node.cool_down()), absl::Seconds(30));
  EXPECT_EQ(cluster_.State(second), v1::QUEUED);
  EXPECT_THAT(cluster_.Get(second).waits(0).missing(1).reason(),
              "not used for 30s: 2 launches in a row failed on it");
  cluster_.Run(absl::Seconds(31), {"a", "b"});
  EXPECT_EQ(cluster_.State(second), v1::STARTING) << "it is tried again";
  EXPECT_FALSE(cluster_.GetNode("a").has_cool_down());
  FailLaunch(second);
  EXPECT_EQ(CoolDown(), absl::Minutes(1)) << "twice as long";
}

TEST_F(Launches, CoolDownIsBounded) {
  cluster_.Join("a");
  const std::string job = Submit();
  for (const int seconds : {0, 30, 60, 120, 240, 480, 600, 600}) {
    ASSERT_EQ(cluster_.State(job), v1::STARTING) << seconds;
    FailLaunch(job);
    EXPECT_EQ(CoolDown(), absl::Seconds(seconds));
    while (cluster_.State(job) == v1::QUEUED) cluster_.Run(absl::Seconds(10), {"a"});
  }
}

TEST_F(Launches, SuccessfulStartForgetsFailures) {
  cluster_.Join("a", 2);
  const std::string job = cluster_.Submit(MakeCommandSpec(1, 2));
  FailLaunch(job, 1);
  cluster_.ReportExit("a", job, 0, testing::KilledBy(15));
  ASSERT_EQ(cluster_.GetNode("a").failed_launches(), 1u);
  ASSERT_EQ(cluster_.State(job), v1::STARTING);
  cluster_.ReportPhase("a", job, 0, v1::STARTED);
  EXPECT_EQ(cluster_.GetNode("a").failed_launches(), 1u) << "rank 1 may fail again";
  cluster_.ReportPhase("a", job, 1, v1::STARTED);
  EXPECT_EQ(cluster_.GetNode("a").failed_launches(), 0u);
}

TEST_F(Launches, RanksOfOneLaunchCountOnce) {
  cluster_.Join("a", 2);
  const std::string job = cluster_.Submit(MakeCommandSpec(1, 2));
  FailLaunch(job, 0);
  FailLaunch(job, 1);
  EXPECT_EQ(cluster_.GetNode("a").failed_launches(), 1u);
}

TEST_F(Launches, ProgramThatExistsNowhereFailsJobAndNotItsNodes) {
  cluster_.Join("a");
  const std::string job = Submit();
  FailLaunch(job, 0, /*lasting=*/true);
  EXPECT_EQ(cluster_.State(job), v1::FAILED);
  EXPECT_EQ(cluster_.GetNode("a").failed_launches(), 0u);
}

TEST_F(Launches, JobThatFailsOnEveryNodeDoesNotLeaveThemOut) {
  for (const char* node : {"a", "b", "c"}) cluster_.Join(node);
  const std::string job = Submit();
  for (int i = 0; i < 6; ++i) {
    FailLaunch(job);
    cluster_.Run(absl::Seconds(20), {"a", "b", "c"});
  }
  for (const char* node : {"a", "b", "c"}) {
    EXPECT_FALSE(cluster_.GetNode(node).has_cool_down()) << node;
  }
}

TEST_F(Launches, StoppedRankIsNoFailedLaunch) {
  cluster_.Join("a");
  const std::string job = Submit();
  ASSERT_TRUE(cluster_.Cancel(job).ok());
  v1::RankReport report;
  report.set_phase(v1::EXITED);
  report.mutable_exit()->set_signal(15);
  report.mutable_exit()->set_stopped_by_worker(true);
  cluster_.Report("a", job, report);
  EXPECT_EQ(cluster_.GetNode("a").failed_launches(), 0u);
}

TEST_F(Launches, UncordonEndsCoolDown) {
  FailTwiceOnA();
  ASSERT_GT(CoolDown(), absl::ZeroDuration());
  const std::string job = Submit();
  EXPECT_THAT(cluster_.Get(job).unplaceable(), HasSubstr("0 usable nodes"));
  cluster_.Step(UncordonNode{NodeName("a")});
  EXPECT_EQ(cluster_.GetNode("a").failed_launches(), 0u);
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
}

TEST_F(Launches, CoolDownSurvivesCoordinatorRestart) {
  FailTwiceOnA();
  cluster_.Restart();
  cluster_.Join("a");
  EXPECT_EQ(CoolDown(), absl::Seconds(30));
  const std::string job = Submit();
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
  cluster_.Run(absl::Seconds(31), {"a"});
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
}

}  // namespace
}  // namespace muster::core
