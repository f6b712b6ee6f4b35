// Sessions of workers: leases, fencing, and the messages to reconnecting workers.
#include <csignal>

#include "common/limits.h"
#include "common/time/proto_time.h"
#include "coordinator/core/nodes/node.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::Contains;
using testing::CountSent;
using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeSpec;
using Message = v1::CoordinatorMessage;

v1::Hello WithInventory(v1::Hello hello, v1::GenerationReport report) {
  *hello.add_inventory() = std::move(report);
  return hello;
}

absl::StatusCode Refusal(const Effects& effects) {
  return effects.closes.size() == 1 ? effects.closes[0].status.code() : absl::StatusCode::kOk;
}

// ----------------------------------------------------------------------------------------------------------
// Hello.

TEST(Hello, IsAnsweredWithWelcome) {
  Harness cluster;
  const Effects effects = cluster.Join("a");
  const Message* welcome = FindSent(effects, cluster.session("a"), Message::kWelcome);
  ASSERT_NE(welcome, nullptr);
  EXPECT_EQ(welcome->welcome().coordinator_incarnation(), 77u);
  EXPECT_EQ(welcome->welcome().observed_address(), "10.0.0.1");
  const std::vector<v1::Node> nodes = cluster.core().ListNodes(cluster.now());
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].state(), v1::READY);
  EXPECT_EQ(nodes[0].address(), "10.0.0.1");
  EXPECT_EQ(nodes[0].metrics_address(), "10.0.0.1:9100");
}

TEST(Hello, RejectsUnusableIdentities) {
  const auto refusal = [](auto change) {
    Harness cluster;
    v1::Hello hello = cluster.MakeHello("a", 1);
    change(hello);
    return Refusal(cluster.Open(hello));
  };
  EXPECT_EQ(refusal([](v1::Hello& hello) { hello.set_protocol_version(99); }),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refusal([](v1::Hello& hello) { hello.set_node_name(""); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal([](v1::Hello& hello) { hello.set_node_name("a/b"); }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal([](v1::Hello& hello) {
              hello.set_node_name(std::string(limits::kNameLength + 1, 'a'));
            }),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal([](v1::Hello& hello) { hello.set_incarnation(0); }),
            absl::StatusCode::kInvalidArgument);
}

TEST(Hello, CompletesMetricsAddress) {
  EXPECT_EQ(CompleteAddress(":9100", "10.0.0.1"), "10.0.0.1:9100");
  EXPECT_EQ(CompleteAddress(":9100", "fe80::1"), "[fe80::1]:9100");
  EXPECT_EQ(CompleteAddress("host:9100", "10.0.0.1"), "host:9100");
}

// ---------------------------------------------------------------------------------------------------------
// Fencing.

TEST(Fencing, RejectsSecondWorkerWhileFirstIsLive) {
  Harness cluster;
  cluster.Join("a", 1, 1);
  EXPECT_EQ(Refusal(cluster.Join("a", 1, 2)), absl::StatusCode::kAlreadyExists);
  cluster.CloseStream("a");
  EXPECT_EQ(cluster.StateOf("a"), v1::SUSPECT);
  EXPECT_EQ(Refusal(cluster.Join("a", 1, 2)), absl::StatusCode::kOk);
  EXPECT_EQ(cluster.StateOf("a"), v1::READY);
}

TEST(Fencing, RejectsOlderIncarnation) {
  Harness cluster;
  cluster.Join("a", 1, 1);
  cluster.CloseStream("a");
  cluster.Join("a", 1, 2);
  cluster.CloseStream("a");
  EXPECT_EQ(Refusal(cluster.Join("a", 1, 1)), absl::StatusCode::kAlreadyExists);
  cluster.Restart();
  EXPECT_EQ(Refusal(cluster.Join("a", 1, 1)), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Refusal(cluster.Join("a", 1, 2)), absl::StatusCode::kOk);
}

TEST(Fencing, NewerSessionOfSameWorkerReplacesOlder) {
  Harness cluster;
  cluster.Join("a", 1, 1);
  const SessionId old = cluster.session("a");
  const Effects effects = cluster.Join("a", 1, 1);
  ASSERT_EQ(effects.closes.size(), 1u);
  EXPECT_EQ(effects.closes[0].session, old);
  EXPECT_EQ(effects.closes[0].status.code(), absl::StatusCode::kAborted);
  cluster.Step(SessionClosed{old});
  EXPECT_EQ(cluster.StateOf("a"), v1::READY);
}

TEST(Fencing, IgnoresMessagesOfStaleSession) {
  Harness cluster;
  cluster.Join("a", 1, 1);
  const SessionId old = cluster.session("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.CloseStream("a");
  v1::WorkerMessage message;
  *message.mutable_report() = cluster.MakeInventory(job, {Harness::MakeReport(0, v1::STARTED)});
  const Effects effects = cluster.Step(SessionMessage{old, message});
  EXPECT_TRUE(effects.writes.empty());
  EXPECT_EQ(cluster.Get(job).ranks(0).phase(), v1::PLACED);
}

TEST(Fencing, IgnoresReportsAboutRanksOfOtherNodes) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.ReportExit("a", job, 1, ExitWith(3));
  EXPECT_EQ(cluster.State(job), v1::STARTING);
  EXPECT_EQ(cluster.Get(job).ranks(1).phase(), v1::PLACED);
}

// ----------------------------------------------------------------------------------------------------------
// Leases.

TEST(Leases, HeartbeatsRenewLeaseAndAreAcknowledged) {
  Harness cluster;
  cluster.Join("a");
  EXPECT_EQ(CountSent(cluster.SendHeartbeat("a"), cluster.session("a"), Message::kHeartbeatAck), 1);
  cluster.Run(absl::Seconds(60), {"a"});
  EXPECT_EQ(cluster.StateOf("a"), v1::READY);
}

TEST(Leases, SilentNodeIsLostWhenLeaseEnds) {
  Harness cluster;
  cluster.Join("a");
  cluster.Advance(absl::Seconds(10) - absl::Nanoseconds(1));
  cluster.Step(Tick{});
  EXPECT_EQ(cluster.StateOf("a"), v1::READY);
  cluster.Advance(absl::Nanoseconds(1));
  const Effects effects = cluster.Step(Tick{});
  EXPECT_EQ(cluster.StateOf("a"), v1::LOST);
  EXPECT_EQ(Refusal(effects), absl::StatusCode::kUnavailable);
  cluster.Join("a");
  EXPECT_EQ(cluster.StateOf("a"), v1::READY);
}

TEST(Leases, CoordinatorLagExtendsLeases) {
  Harness cluster;
  cluster.Join("a");
  cluster.Advance(absl::Seconds(25));
  cluster.Step(Tick{absl::Seconds(16)});
  EXPECT_EQ(cluster.StateOf("a"), v1::READY) << "the coordinator was suspended, not the node";
  cluster.Advance(absl::Seconds(1));
  cluster.Step(Tick{});
  EXPECT_EQ(cluster.StateOf("a"), v1::LOST);
}

TEST(Leases, SmallLagDoesNotExtendLeases) {
  Harness cluster;
  cluster.Join("a");
  cluster.Advance(absl::Seconds(10) + absl::Milliseconds(5));
  cluster.Step(Tick{absl::Milliseconds(5)});
  EXPECT_EQ(cluster.StateOf("a"), v1::LOST);
}

TEST(Leases, NextDeadlineIsEarliest) {
  Harness cluster;
  EXPECT_EQ(cluster.core().NextDeadline(), SteadyTime::Infinite());
  cluster.Join("a");
  const SteadyTime first = cluster.core().NextDeadline();
  EXPECT_EQ(first, cluster.now().steady + absl::Seconds(10));
  cluster.Advance(absl::Seconds(3));
  cluster.Join("b");
  EXPECT_EQ(cluster.core().NextDeadline(), first);
  cluster.SendHeartbeat("a");
  EXPECT_EQ(cluster.core().NextDeadline(), cluster.now().steady + absl::Seconds(10));
}

// --------------------------------------------------------------------------------------------------------
// Adoption.

TEST(Adoption, RestartedWorkerWithItsRanksContinues) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  cluster.CloseStream("b");
  EXPECT_THAT(cluster.EventTypes(job), Contains(events::kNodeSuspect));
  cluster.Open(WithInventory(cluster.MakeHello("b", 1, 2),
                             cluster.MakeInventory(job, {Harness::MakeReport(1, v1::CONNECTED)})));
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
  EXPECT_THAT(cluster.EventTypes(job), Contains(events::kNodeAdopted));
  cluster.Run(absl::Seconds(30), {"a", "b"});
  cluster.ExitAll(job, ExitWith(0));
  EXPECT_EQ(cluster.State(job), v1::SUCCEEDED);
  EXPECT_EQ(cluster.Get(job).generation(), 1u);
}

TEST(Adoption, RestartedWorkerWithoutItsRanksLosesThem) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  cluster.CloseStream("b");
  cluster.Join("b", 1, 2);
  EXPECT_EQ(cluster.State(job), v1::STOPPING);
  EXPECT_EQ(cluster.Get(job).first_failure().reason(), reasons::kNodeLost);
  EXPECT_EQ(cluster.Get(job).first_failure().node(), "b");
  cluster.ReportExit("a", job, 0, ExitWith(0));
  EXPECT_EQ(cluster.State(job), v1::STARTING);
  EXPECT_EQ(cluster.Get(job).generation(), 2u);
}

TEST(Adoption, FailsGenerationWhenSomeRanksAreMissing) {
  Harness cluster;
  cluster.Join("a", 2);
  const std::string job = cluster.Submit(MakeSpec(1, 2));
  cluster.BringUp(job);
  cluster.CloseStream("a");
  const Effects effects = cluster.Open(
      WithInventory(cluster.MakeHello("a", 2, 2),
                    cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)})));
  EXPECT_EQ(cluster.State(job), v1::STOPPING);
  EXPECT_EQ(cluster.Get(job).first_failure().reason(), reasons::kNodeLost);
  EXPECT_GE(CountSent(effects, cluster.session("a"), Message::kStop), 1);
  cluster.ReportExit("a", job, 0, ExitWith(0));
  EXPECT_EQ(cluster.Get(job).generation(), 2u);
}

TEST(Adoption, ResendsLaunchThatNeverArrived) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.CloseStream("a");
  const Effects effects = cluster.Join("a");
  EXPECT_EQ(CountSent(effects, cluster.session("a"), Message::kLaunch), 1);
  EXPECT_EQ(cluster.State(job), v1::STARTING);
}

TEST(Adoption, DoesNotResendLaunchToAnotherWorker) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.CloseStream("a");
  cluster.Join("a", 1, 2);
  const v1::Job again = cluster.Get(job);
  EXPECT_EQ(again.generation(), 2u);
  EXPECT_EQ(again.restarts(), 0u) << "generation 1 had not started";
  EXPECT_FALSE(again.has_first_failure());
}

TEST(Adoption, ResendsWorldAndStop) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.ReportPhase("a", job, 0, v1::JOINED);
  cluster.CloseStream("a");
  const v1::Hello hello = WithInventory(
      cluster.MakeHello("a", 1), cluster.MakeInventory(job, {Harness::MakeReport(0, v1::JOINED)}));
  EXPECT_EQ(CountSent(cluster.Open(hello), cluster.session("a"), Message::kWorld), 1);
  ASSERT_TRUE(cluster.Cancel(job).ok());
  EXPECT_EQ(CountSent(cluster.Open(hello), cluster.session("a"), Message::kStop), 1);
}

TEST(Adoption, StopOfUnlaunchedRanksEndsAtOnce) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.CloseStream("a");
  ASSERT_TRUE(cluster.Cancel(job).ok());
  EXPECT_EQ(cluster.State(job), v1::STOPPING);
  cluster.Join("a");
  EXPECT_EQ(cluster.State(job), v1::CANCELLED);
}

TEST(Leftovers, KeepSlotsUntilExit) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  cluster.Run(absl::Seconds(11));
  EXPECT_EQ(cluster.State(job), v1::QUEUED);
  v1::GenerationReport live = cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)});
  const Effects back = cluster.Open(WithInventory(cluster.MakeHello("a", 1), live));
  EXPECT_EQ(CountSent(back, cluster.session("a"), Message::kStop), 1);
  EXPECT_EQ(cluster.State(job), v1::QUEUED) << "its own leftover still occupies the slot";
  // A late heartbeat changes nothing.
  v1::WorkerMessage beat;
  *beat.mutable_heartbeat()->add_progress() = live;
  cluster.SendMessage("a", beat);
  v1::RankReport gone = Harness::MakeReport(0, v1::EXITED);
  gone.mutable_exit()->set_signal(SIGKILL);
  v1::WorkerMessage report;
  *report.mutable_report() = live;
  *report.mutable_report()->mutable_ranks(0) = gone;
  const Effects ended = cluster.SendMessage("a", report);
  EXPECT_EQ(CountSent(ended, cluster.session("a"), Message::kForget), 1);
  EXPECT_EQ(cluster.State(job), v1::STARTING);
  EXPECT_EQ(cluster.Get(job).generation(), 2u);
}

TEST(Leftovers, OfUnknownJobsOccupyWholeNode) {
  Harness cluster;
  const std::string job = cluster.Submit(MakeSpec(1));
  v1::GenerationReport unknown;
  unknown.set_job_id("unknown");
  unknown.set_generation(4);
  *unknown.add_ranks() = Harness::MakeReport(0, v1::CONNECTED);
  const Effects effects = cluster.Open(WithInventory(cluster.MakeHello("a", 2), unknown));
  EXPECT_EQ(CountSent(effects, cluster.session("a"), Message::kStop), 1);
  EXPECT_EQ(cluster.State(job), v1::QUEUED);
  *unknown.mutable_ranks(0) = Harness::MakeReport(0, v1::EXITED);
  v1::WorkerMessage report;
  *report.mutable_report() = unknown;
  EXPECT_EQ(CountSent(cluster.SendMessage("a", report), cluster.session("a"), Message::kForget), 1);
  EXPECT_EQ(cluster.State(job), v1::STARTING);
}

TEST(Leftovers, WorkerForgetsEndedGenerations) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.ExitAll(job, ExitWith(0));
  cluster.CloseStream("a");
  const Effects effects =
      cluster.Open(WithInventory(cluster.MakeHello("a", 1, 2),
                                 cluster.MakeInventory(job, {Harness::MakeReport(0, v1::EXITED)})));
  EXPECT_EQ(CountSent(effects, cluster.session("a"), Message::kForget), 1);
  EXPECT_EQ(cluster.State(job), v1::SUCCEEDED);
}

TEST(Views, FindRanksOnTheirNodes) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  const auto found = cluster.core().FindRank(JobId(job), Generation(0), Rank(0));
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->node, NodeName("a"));
  EXPECT_EQ(found->generation, Generation(1));
  EXPECT_FALSE(found->over);
  EXPECT_EQ(cluster.core().FindRank(JobId(job), Generation(0), Rank(1)).status().code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(cluster.core().FindRank(JobId(job), Generation(2), Rank(0)).status().code(),
            absl::StatusCode::kNotFound);
  cluster.ExitAll(job, ExitWith(0));
  EXPECT_TRUE(cluster.core().FindRank(JobId(job), Generation(1), Rank(0))->over);
  cluster.CloseStream("a");
  EXPECT_EQ(cluster.core().FindRank(JobId(job), Generation(0), Rank(0)).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace muster::core
