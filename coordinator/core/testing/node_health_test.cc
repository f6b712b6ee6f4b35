// Self-tests of workers, cordons by the coordinator, and drains with a deadline.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/time/proto_time.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;

class NodeHealth : public ::testing::Test {
 protected:
  // Opens a session of a worker that tests itself.
  Effects Join(const std::string& node, uint32_t slots = 1, uint64_t incarnation = 1) {
    v1::Hello hello = cluster_.MakeHello(node, slots, incarnation);
    hello.set_tests_itself(true);
    return Note(cluster_.Open(hello));
  }
  Effects Step(const Event& event) { return Note(cluster_.Step(event)); }
  Effects Run(absl::Duration by) { return Note(cluster_.Run(by, {"a"})); }
  // Remembers the newest self-test that was requested.
  Effects Note(Effects effects) {
    for (const Send& send : effects.sends) {
      if (!send.message.has_self_test()) continue;
      test_ = send.message.self_test().id();
      ++tests_;
    }
    return effects;
  }
  // Answers the newest request; returns the answer's effects.
  Effects Answer(const std::string& failure = "", const std::string& check = "disk") {
    return AnswerTest(test_.value_or(0), failure, check);
  }
  Effects AnswerTest(uint64_t id, const std::string& failure, const std::string& check = "disk") {
    v1::WorkerMessage message;
    v1::SelfTestReport& report = *message.mutable_self_test();
    report.set_id(id);
    report.add_checks()->set_name(check);
    report.mutable_checks(0)->set_failure(failure);
    *report.mutable_duration() = ToProto(absl::Milliseconds(20));
    return Note(cluster_.SendMessage("a", message));
  }
  void FailLaunch(const std::string& job) {
    v1::RankReport report;  // without pid: the rank never ran
    report.set_phase(v1::EXITED);
    *report.mutable_exit() = ExitWith(126);
    report.mutable_exit()->mutable_failure()->set_message("no space left on device");
    Note(cluster_.Report("a", job, report));
  }
  std::string Submit() { return cluster_.Submit(MakeCommandSpec(1)); }
  v1::Node A() const { return cluster_.GetNode("a"); }
  int TakeTests() { return std::exchange(tests_, 0); }
  // The absl code of TestNode.
  absl::StatusCode Test(const std::string& node) {
    const Effects effects = Step(TestNode{RequestId(1'000'000), NodeName(node)});
    return effects.replies.at(0).job.status().code();
  }

  Harness cluster_;
  std::optional<uint64_t> test_;
  int tests_ = 0;
};

TEST_F(NodeHealth, WorkerIsTestedWhenItConnects) {
  Join("a");
  EXPECT_EQ(TakeTests(), 1);
  EXPECT_TRUE(A().self_test().running());
  EXPECT_EQ(cluster_.State(Submit()), v1::STARTING) << "the node is used at once";
  Answer();
  EXPECT_FALSE(A().cordoned());
  EXPECT_FALSE(A().self_test().running());
  ASSERT_EQ(A().self_test().checks_size(), 1);
  EXPECT_EQ(FromProto(A().self_test().duration()), absl::Milliseconds(20));
  EXPECT_EQ(FromProto(A().self_test().age()), absl::ZeroDuration());
}

TEST_F(NodeHealth, OlderWorkerIsNotTested) {
  Note(cluster_.Join("a"));
  EXPECT_EQ(TakeTests(), 0);
  EXPECT_FALSE(A().has_self_test());
  EXPECT_EQ(Test("a"), absl::StatusCode::kFailedPrecondition);
}

TEST_F(NodeHealth, FailedSelfTestCordonsNodeUntilOneSucceeds) {
  Join("a");
  Answer("write /data/self-test: No space left on device");
  EXPECT_TRUE(A().cordoned());
  EXPECT_TRUE(A().cordoned_by_health());
  EXPECT_EQ(A().cordon_reason(), "self-test: disk: write /data/self-test: No space left on device");
  const std::string job = Submit();
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
  EXPECT_THAT(cluster_.Get(job).ShortDebugString(), HasSubstr("cordoned: self-test: disk"));
  TakeTests();
  Run(absl::Seconds(29));
  EXPECT_EQ(TakeTests(), 0);
  Run(absl::Seconds(2));
  EXPECT_EQ(TakeTests(), 1);
  Answer();
  EXPECT_FALSE(A().cordoned());
  EXPECT_FALSE(A().cordoned_by_health());
  EXPECT_EQ(A().cordon_reason(), "");
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
}

TEST_F(NodeHealth, SelfTestsOfCordonedNodeBecomeRarer) {
  Join("a");
  Answer("full");
  for (const int seconds : {30, 60, 120, 240, 480, 600, 600}) {
    TakeTests();
    Run(absl::Seconds(seconds) - absl::Milliseconds(500));
    EXPECT_EQ(TakeTests(), 0) << seconds;
    Run(absl::Milliseconds(500));
    ASSERT_EQ(TakeTests(), 1) << seconds;
    Answer("full");
  }
}

TEST_F(NodeHealth, SelfTestThatIsNotAnsweredFails) {
  Join("a");
  Run(absl::Seconds(91));
  EXPECT_EQ(A().cordon_reason(), "self-test: worker: no answer within 1m30s");
  AnswerTest(1, "");
  EXPECT_TRUE(A().cordoned()) << "too late";
}

TEST_F(NodeHealth, UnhealthyGpuDoesNotCordonNode) {
  Join("a");
  Answer("Xid 79", "gpu 1");
  EXPECT_FALSE(A().cordoned());
  EXPECT_EQ(A().self_test().checks(0).failure(), "Xid 79");
}

TEST_F(NodeHealth, CoolDownEndsWithSelfTest) {
  Join("a");
  Answer();
  const std::string job = Submit();
  TakeTests();
  FailLaunch(job);
  EXPECT_EQ(TakeTests(), 1) << "the node is tested at once";
  Answer();
  FailLaunch(job);
  Answer();
  EXPECT_EQ(FromProto(A().cool_down()), absl::Seconds(30)) << "a test does not shorten it";
  EXPECT_EQ(A().launch_failure(), "no space left on device");
  TakeTests();
  Run(absl::Seconds(30));
  EXPECT_EQ(TakeTests(), 1);
  EXPECT_TRUE(A().has_cool_down()) << "until the test has succeeded";
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
  Answer();
  EXPECT_FALSE(A().has_cool_down());
  EXPECT_EQ(A().failed_launches(), 2u);
  Run(absl::Seconds(5));
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
}

TEST_F(NodeHealth, SelfTestThatFailsAfterLaunchFailureCordonsNode) {
  Join("a");
  Answer();
  FailLaunch(Submit());
  Answer("full");
  EXPECT_EQ(A().failed_launches(), 1u);
  EXPECT_EQ(A().cordon_reason(), "self-test: disk: full");
}

TEST_F(NodeHealth, ThirdFailedLaunchCordonsNode) {
  Join("a", 4);
  Answer();
  const std::vector<std::string> jobs = {Submit(), Submit(), Submit(), Submit()};
  for (int i = 0; i < 3; ++i) FailLaunch(jobs[i]);
  EXPECT_TRUE(A().cordoned_by_health());
  EXPECT_EQ(A().cordon_reason(), "3 launches in a row failed");
  EXPECT_FALSE(A().has_cool_down());
  FailLaunch(jobs[3]);
  EXPECT_EQ(A().failed_launches(), 3u) << "it had been launched before";
  AnswerTest(2, "");
  EXPECT_TRUE(A().cordoned()) << "a test from before the cordon does not end it";
  TakeTests();
  Run(absl::Seconds(30));
  EXPECT_EQ(TakeTests(), 1);
  Answer();
  EXPECT_FALSE(A().cordoned());
  for (const std::string& job : jobs) {
    if (cluster_.State(job) != v1::STARTING) continue;
    FailLaunch(job);
    break;
  }
  EXPECT_TRUE(A().cordoned()) << "no launch has succeeded since";
  TakeTests();
  Run(absl::Seconds(59));
  EXPECT_EQ(TakeTests(), 0) << "twice as long";
}

TEST_F(NodeHealth, OperatorsCordonIsNeverLifted) {
  Join("a");
  Answer("full");
  cluster_.Step(CordonNode{NodeName("a"), "bad fan"});
  EXPECT_FALSE(A().cordoned_by_health());
  EXPECT_EQ(Test("a"), absl::StatusCode::kOk);
  Answer();
  EXPECT_TRUE(A().cordoned());
  EXPECT_EQ(A().cordon_reason(), "bad fan");
  cluster_.CloseStream("a");
  Join("a", 1, 2);
  Answer("full");
  EXPECT_FALSE(A().cordoned_by_health());
  EXPECT_EQ(A().cordon_reason(), "bad fan");
}

TEST_F(NodeHealth, OperatorLiftsCordonByHealth) {
  Join("a");
  Answer("full");
  const std::string job = Submit();
  cluster_.Step(UncordonNode{NodeName("a")});
  EXPECT_FALSE(A().cordoned());
  EXPECT_EQ(cluster_.State(job), v1::STARTING);
  TakeTests();
  Run(absl::Minutes(1));
  EXPECT_EQ(TakeTests(), 0);
}

TEST_F(NodeHealth, TestOnDemandLiftsCordonByHealth) {
  Join("a");
  EXPECT_EQ(Test("a"), absl::StatusCode::kOk);
  EXPECT_EQ(TakeTests(), 1) << "one is running already";
  Answer("full");
  EXPECT_EQ(Test("a"), absl::StatusCode::kOk);
  EXPECT_EQ(TakeTests(), 1);
  Answer();
  EXPECT_FALSE(A().cordoned());
  cluster_.CloseStream("a");
  EXPECT_EQ(Test("a"), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Test("b"), absl::StatusCode::kNotFound);
}

TEST_F(NodeHealth, CordonByHealthSurvivesCoordinatorRestart) {
  Join("a");
  Answer("full");
  cluster_.Restart();
  EXPECT_TRUE(A().cordoned_by_health());
  Join("a");
  EXPECT_TRUE(A().cordoned_by_health());
  EXPECT_EQ(A().cordon_reason(), "self-test: disk: full");
  Answer();
  EXPECT_FALSE(A().cordoned());
  cluster_.Restart();
  EXPECT_FALSE(A().cordoned());
}

TEST_F(NodeHealth, OlderWorkerEndsCordonByHealth) {
  Join("a");
  Answer("full");
  cluster_.CloseStream("a");
  cluster_.Join("a", 1, 2);
  EXPECT_FALSE(A().cordoned());
}

TEST_F(NodeHealth, LostSessionEndsSelfTest) {
  Join("a");
  cluster_.CloseStream("a");
  EXPECT_FALSE(A().self_test().running());
  Join("a");
  EXPECT_EQ(test_, 2u);
  AnswerTest(1, "full");
  EXPECT_FALSE(A().cordoned());
  Answer();
  EXPECT_FALSE(A().self_test().running());
}

// ------------------------------------------------------------------------------------------------
// drains

class DrainDeadline : public NodeHealth {
 protected:
  Effects Drain(std::optional<absl::Duration> deadline) {
    return Step(CordonNode{NodeName("a"), "", /*drain=*/true, deadline});
  }
  std::optional<absl::Duration> GraceIn(const Effects& effects) {
    const v1::CoordinatorMessage* const stop =
        FindSent(effects, cluster_.session("a"), v1::CoordinatorMessage::kStop);
    if (stop == nullptr) return std::nullopt;
    return FromProto(stop->stop().grace_period());
  }
};

TEST_F(DrainDeadline, ShortensGracePeriod) {
  cluster_.Join("a");
  cluster_.BringUp(Submit());
  EXPECT_EQ(GraceIn(Drain(absl::Seconds(10))), absl::Seconds(10)) << "of 30 s";
  EXPECT_EQ(FromProto(A().drain_deadline()), absl::Seconds(10));
  EXPECT_EQ(GraceIn(Drain(absl::Seconds(2))), absl::Seconds(2));
  cluster_.Step(UncordonNode{NodeName("a")});
  EXPECT_FALSE(A().has_drain_deadline());
}

TEST_F(DrainDeadline, DoesNotProlongGracePeriod) {
  cluster_.Join("a");
  cluster_.BringUp(Submit());
  EXPECT_EQ(GraceIn(Drain(absl::Minutes(10))), absl::Seconds(30));
}

TEST_F(DrainDeadline, AppliesToJobThatIsStoppingAlready) {
  cluster_.Join("a");
  const std::string job = Submit();
  cluster_.BringUp(job);
  ASSERT_TRUE(cluster_.Cancel(job).ok());
  EXPECT_EQ(GraceIn(Drain(absl::Seconds(5))), absl::Seconds(5));
  EXPECT_EQ(cluster_.State(job), v1::STOPPING);
}

TEST_F(DrainDeadline, SurvivesCoordinatorRestart) {
  cluster_.Join("a");
  const std::string job = Submit();
  cluster_.BringUp(job);
  Drain(absl::Seconds(10));
  cluster_.Advance(absl::Seconds(4));
  const v1::GenerationReport inventory =
      cluster_.MakeInventory(job, {Harness::MakeReport(0, v1::STARTED)});
  cluster_.Restart();
  EXPECT_EQ(FromProto(A().drain_deadline()), absl::Seconds(6));
  v1::Hello hello = cluster_.MakeHello("a", 1);
  *hello.add_inventory() = inventory;
  EXPECT_EQ(GraceIn(cluster_.Open(hello)), absl::Seconds(6));
}

}  // namespace
}  // namespace muster::core
