// Jobs that are requeued without a failure: by their user, because a node is drained, or because
// its worker shuts down. This uses up no restart.
#include <csignal>

#include "common/time/proto_time.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/testing/harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::Contains;
using testing::CountSent;
using ::testing::ElementsAre;
using testing::ExitWith;
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using testing::KilledBy;
using testing::MakeSpec;
using Message = v1::CoordinatorMessage;

v1::ExitInfo Stopped() {
  v1::ExitInfo exit = KilledBy(SIGTERM);
  exit.set_stopped_by_worker(true);
  return exit;
}

TEST(Requeue, StopsRanksWithGraceAndStartsNextGeneration) {
  Harness cluster;
  cluster.Join("a");
  v1::JobSpec spec = MakeSpec(1);
  spec.mutable_restart()->set_max(0);
  const std::string job = cluster.Submit(spec);
  cluster.BringUp(job);
  const absl::StatusOr<v1::Job> reply = cluster.Requeue(job);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->state(), v1::STOPPING);
  EXPECT_EQ(reply->reason(), reasons::kRequeuedByUser);
  EXPECT_EQ(cluster.Requeue(job)->state(), v1::STOPPING) << "requeueing is idempotent";
  cluster.ExitAll(job, Stopped());
  const v1::Job again = cluster.Get(job);
  EXPECT_EQ(again.state(), v1::STARTING);
  EXPECT_EQ(again.generation(), 2u);
  EXPECT_EQ(again.restarts(), 0u);
  EXPECT_FALSE(again.has_first_failure());
  EXPECT_THAT(cluster.EventTypes(job), Contains(events::kRequeued));
  EXPECT_TRUE(cluster.core().FindRank(JobId(job), Generation(1), Rank(0)).ok())
      << "generation 1 is kept";
}

TEST(Requeue, QueuesAtHeadOfItsPriority) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  const std::string waiting = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  v1::JobSpec urgent_spec = MakeSpec(1);
  urgent_spec.set_priority(1);
  const std::string urgent = cluster.Submit(urgent_spec);
  ASSERT_TRUE(cluster.Requeue(job).ok());
  cluster.ExitAll(job, Stopped());
  EXPECT_EQ(cluster.State(urgent), v1::STARTING);
  const v1::Job queued = cluster.Get(job);
  EXPECT_EQ(queued.state(), v1::QUEUED);
  EXPECT_EQ(queued.reason(), reasons::kRequeuedByUser);
  EXPECT_EQ(queued.queue_position(), 1u);
  EXPECT_EQ(cluster.Get(waiting).queue_position(), 2u);
  cluster.Restart();
  EXPECT_EQ(cluster.Get(job).queue_position(), 1u) << "also after a restart";
  EXPECT_EQ(cluster.Requeue(job)->state(), v1::QUEUED);
}

TEST(Requeue, SurvivesCoordinatorRestartWhileStopping) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  ASSERT_TRUE(cluster.Requeue(job).ok());
  cluster.Restart();
  v1::Hello hello = cluster.MakeHello("a", 1);
  *hello.add_inventory() = cluster.MakeInventory(job, {Harness::MakeReport(0, v1::CONNECTED)});
  const Effects effects = cluster.Open(hello);
  const Message* stop = FindSent(effects, cluster.session("a"), Message::kStop);
  ASSERT_NE(stop, nullptr);
  EXPECT_EQ(stop->stop().reason(), reasons::kRequeuedByUser);
  EXPECT_FALSE(stop->stop().abort());
  EXPECT_EQ(FromProto(stop->stop().grace_period()), absl::Seconds(30));
  cluster.ExitAll(job, Stopped());
  EXPECT_EQ(cluster.Get(job).generation(), 2u);
}

TEST(Requeue, CancelTakesPrecedence) {
  Harness cluster;
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  ASSERT_TRUE(cluster.Requeue(job).ok());
  ASSERT_TRUE(cluster.Cancel(job).ok());
  const absl::Status late = cluster.Requeue(job).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(late.message()), HasSubstr("is STOPPING (will be CANCELLED)"));
  cluster.ExitAll(job, Stopped());
  EXPECT_EQ(cluster.State(job), v1::CANCELLED);
}

// The user requeues a job that was about to fail permanently: it runs again, and the failure stays
// on record.
TEST(Requeue, RestartsFailingJobWithoutRestartsLeft) {
  Harness cluster;
  cluster.Join("a", 2);
  v1::JobSpec spec = MakeSpec(1, 2);
  spec.mutable_restart()->set_max(0);
  const std::string job = cluster.Submit(spec);
  cluster.BringUp(job);
  cluster.ReportExit("a", job, 0, ExitWith(3));
  ASSERT_TRUE(cluster.Requeue(job).ok());
  cluster.ReportExit("a", job, 1, Stopped());
  const v1::Job again = cluster.Get(job);
  EXPECT_EQ(again.generation(), 2u);
  EXPECT_EQ(again.restarts(), 0u);
  EXPECT_EQ(again.first_failure().exit().exit_code(), 3);
}

TEST(Requeue, TimeInQueueDoesNotCountAgainstTimeLimit) {
  Harness cluster;
  cluster.Join("a");
  v1::JobSpec spec = MakeSpec(1);
  *spec.mutable_time_limit() = ToProto(absl::Minutes(10));
  const std::string job = cluster.Submit(spec);
  cluster.BringUp(job);
  cluster.Run(absl::Minutes(8), {"a"});
  cluster.Step(CordonNode{NodeName("a"), "", /*drain=*/true});
  cluster.ExitAll(job, Stopped());
  cluster.Run(absl::Hours(1), {"a"});
  cluster.Restart();
  cluster.Join("a");
  cluster.Step(UncordonNode{NodeName("a")});
  ASSERT_EQ(cluster.State(job), v1::STARTING);
  cluster.BringUp(job);
  cluster.Run(absl::Seconds(119), {"a"});
  EXPECT_EQ(cluster.State(job), v1::RUNNING);
  cluster.Run(absl::Seconds(2), {"a"});
  EXPECT_EQ(cluster.State(job), v1::STOPPING);
  EXPECT_EQ(cluster.Get(job).reason(), reasons::kTimeLimit);
}

TEST(Requeue, KeepsTimeLimitOfStoppingJob) {
  Harness cluster;
  cluster.Join("a");
  v1::JobSpec spec = MakeSpec(1);
  *spec.mutable_time_limit() = ToProto(absl::Seconds(20));
  const std::string job = cluster.Submit(spec);
  cluster.BringUp(job);
  cluster.Run(absl::Seconds(15), {"a"});
  ASSERT_TRUE(cluster.Requeue(job).ok());
  cluster.Run(absl::Seconds(6), {"a"});
  cluster.ExitAll(job, Stopped());
  EXPECT_EQ(cluster.State(job), v1::TIMED_OUT);
}

// ---------------------------------------------------------------------------------------- nodes

TEST(Cordon, NodeKeepsItsRanksAndGetsNoNewOnes) {
  Harness cluster;
  cluster.Join("a", 2);
  const std::string running = cluster.Submit(MakeSpec(1));
  cluster.BringUp(running);
  const Effects effects = cluster.Step(CordonNode{NodeName("a"), "bad fan"});
  EXPECT_THAT(effects.logs, ElementsAre("node a was cordoned: bad fan"));
  EXPECT_TRUE(cluster.Step(CordonNode{NodeName("a"), "bad fan"}).writes.empty()) << "idempotent";
  EXPECT_EQ(cluster.State(running), v1::RUNNING);
  const std::string waiting = cluster.Submit(MakeSpec(1));
  EXPECT_EQ(cluster.State(waiting), v1::QUEUED);
  EXPECT_EQ(cluster.Get(waiting).waits(0).missing(1).reason(), "cordoned: bad fan");

  cluster.Restart();
  cluster.Join("a", 2, 2);
  EXPECT_TRUE(cluster.GetNode("a").cordoned()) << "also for a new worker and after a restart";
  EXPECT_EQ(cluster.GetNode("a").cordon_reason(), "bad fan");
  EXPECT_EQ(cluster.State(waiting), v1::QUEUED);
  cluster.Step(UncordonNode{NodeName("a")});
  EXPECT_FALSE(cluster.GetNode("a").cordoned());
  EXPECT_EQ(cluster.State(waiting), v1::STARTING);
  EXPECT_TRUE(cluster.Step(UncordonNode{NodeName("a")}).writes.empty());
}

TEST(Cordon, IgnoresUnknownNode) {
  Harness cluster;
  EXPECT_TRUE(cluster.Step(CordonNode{NodeName("a"), ""}).writes.empty());
  EXPECT_TRUE(cluster.Step(UncordonNode{NodeName("a")}).writes.empty());
  EXPECT_EQ(cluster.core().GetNode(NodeName("a"), cluster.now()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(Drain, JobsMoveWithoutUsingARestart) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  v1::JobSpec spec = MakeSpec(1);
  spec.mutable_restart()->set_max(0);
  const std::string job = cluster.Submit(spec);
  cluster.BringUp(job);
  const Effects drained = cluster.Step(CordonNode{NodeName("a"), "new disk", /*drain=*/true});
  const Message* stop = FindSent(drained, cluster.session("a"), Message::kStop);
  ASSERT_NE(stop, nullptr);
  EXPECT_EQ(stop->stop().reason(), reasons::kNodeDrained);
  EXPECT_EQ(stop->stop().message(), "node a is being drained: new disk");
  EXPECT_FALSE(stop->stop().abort()) << "the ranks have time for a checkpoint";
  EXPECT_TRUE(cluster.Step(CordonNode{NodeName("a"), "new disk", true}).sends.empty());
  cluster.ExitAll(job, Stopped());
  const v1::Job moved = cluster.Get(job);
  EXPECT_EQ(moved.state(), v1::STARTING);
  EXPECT_EQ(moved.ranks(0).node(), "b");
  EXPECT_EQ(moved.restarts(), 0u);
  EXPECT_TRUE(cluster.GetNode("a").slots(0).job_id().empty());
}

// The ranks exited with code 0 while the directive to stop was on its way.
TEST(Drain, JobThatFinishesMeanwhileIsNotQueuedAgain) {
  Harness cluster;
  cluster.Join("a", 2);
  const std::string job = cluster.Submit(testing::MakeCommandSpec(1, 2));
  cluster.BringUp(job);
  cluster.ReportExit("a", job, 0, ExitWith(0));
  cluster.Step(CordonNode{NodeName("a"), "", /*drain=*/true});
  EXPECT_EQ(cluster.State(job), v1::STOPPING);
  cluster.ReportExit("a", job, 1, ExitWith(0));
  EXPECT_EQ(cluster.State(job), v1::SUCCEEDED);
  EXPECT_EQ(cluster.Get(job).reason(), reasons::kCompleted);
  EXPECT_EQ(cluster.Get(job).exit_code(), 0);
}

TEST(Drain, JobWithStoppedRankIsQueuedAgain) {
  Harness cluster;
  cluster.Join("a", 2);
  const std::string job = cluster.Submit(testing::MakeCommandSpec(1, 2));
  cluster.BringUp(job);
  cluster.ReportExit("a", job, 0, ExitWith(0));
  cluster.Step(CordonNode{NodeName("a"), "", /*drain=*/true});
  v1::ExitInfo saved = ExitWith(0);  // it saved a checkpoint on SIGTERM
  saved.set_stopped_by_worker(true);
  cluster.ReportExit("a", job, 1, saved);
  EXPECT_EQ(cluster.State(job), v1::QUEUED);
}

TEST(Drain, JobsWaitWithoutCapacityElsewhere) {
  Harness cluster;
  cluster.Join("a");
  cluster.Join("b");
  const std::string job = cluster.Submit(MakeSpec(2));
  const std::string behind = cluster.Submit(MakeSpec(2));
  cluster.BringUp(job);
  cluster.Step(CordonNode{NodeName("a"), "", /*drain=*/true});
  cluster.ExitAll(job, Stopped());
  const v1::Job queued = cluster.Get(job);
  EXPECT_EQ(queued.state(), v1::QUEUED);
  EXPECT_EQ(queued.reason(), reasons::kNodeDrained);
  EXPECT_EQ(queued.message(), "node a is being drained");
  EXPECT_EQ(queued.queue_position(), 1u);
  EXPECT_EQ(queued.waits(0).missing(1).reason(), "cordoned");
  cluster.Step(UncordonNode{NodeName("a")});
  EXPECT_EQ(cluster.State(job), v1::STARTING);
  EXPECT_EQ(cluster.State(behind), v1::QUEUED);
}

// Peers report the loss of a rank that was asked to stop. If its node's stream breaks at that time,
// the node must not be lost for it.
TEST(Drain, ReportsAboutStoppedRanksDoNotAccuseTheirNode) {
  Harness cluster;
  cluster.Join("a", 2);
  cluster.Join("b", 1);
  const std::string job = cluster.Submit(MakeSpec(2));
  const std::string other = cluster.Submit(MakeSpec(1));
  cluster.BringUp(job);
  cluster.BringUp(other);
  ASSERT_TRUE(cluster.Requeue(job).ok());
  v1::RankReport bereaved = Harness::MakeReport(1, v1::CONNECTED);
  bereaved.mutable_failure()->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
  bereaved.mutable_failure()->set_peer_rank(0);
  cluster.Report("b", job, bereaved);
  cluster.CloseStream("a");
  EXPECT_EQ(cluster.StateOf("a"), v1::SUSPECT);
  EXPECT_EQ(cluster.State(other), v1::RUNNING);
}

// --------------------------------------------------------------------- workers that end in order

class Leaving : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster_.Join("a");
    v1::JobSpec spec = MakeSpec(1);
    spec.mutable_restart()->set_max(0);
    job_ = cluster_.Submit(spec);
    cluster_.BringUp(job_);
  }
  void ExpectMovedTo(const std::string& node) {
    const v1::Job moved = cluster_.Get(job_);
    ASSERT_EQ(moved.state(), v1::STARTING) << moved.DebugString();
    EXPECT_EQ(moved.ranks(0).node(), node);
    EXPECT_EQ(moved.restarts(), 0u);
    EXPECT_FALSE(moved.has_first_failure());
  }

  Harness cluster_;
  std::string job_;
};

TEST_F(Leaving, LeavingArrivesBeforeExit) {
  cluster_.Join("b");
  const Effects effects = cluster_.SendLeaving("a");
  EXPECT_EQ(CountSent(effects, cluster_.session("a"), Message::kStop), 1);
  EXPECT_TRUE(cluster_.GetNode("a").leaving());
  EXPECT_EQ(cluster_.Get(job_).reason(), reasons::kNodeDrained);
  cluster_.ExitAll(job_, Stopped());
  ExpectMovedTo("b");
  EXPECT_TRUE(cluster_.SendLeaving("a").sends.empty());
}

TEST_F(Leaving, ExitArrivesBeforeLeaving) {
  cluster_.Join("b");
  cluster_.ExitAll(job_, Stopped());
  EXPECT_EQ(cluster_.Get(job_).generation(), 2u) << "possibly on the same node";
  cluster_.SendLeaving("a");
  cluster_.ExitAll(job_, Stopped());
  ExpectMovedTo("b");
}

// The worker stopped its ranks while the coordinator was down, and reports that when it is back.
TEST_F(Leaving, ExitDuringCoordinatorOutage) {
  cluster_.Restart();
  cluster_.Join("b");
  v1::Hello hello = cluster_.MakeHello("a", 1);
  v1::RankReport exited = Harness::MakeReport(0, v1::EXITED);
  *exited.mutable_exit() = Stopped();
  *hello.add_inventory() = cluster_.MakeInventory(job_, {exited});
  cluster_.Open(hello);
  cluster_.SendLeaving("a");
  cluster_.ExitAll(job_, Stopped());
  ExpectMovedTo("b");
}

TEST_F(Leaving, WorkerExitsBeforeReportingItsRanks) {
  cluster_.SendLeaving("a");
  cluster_.CloseStream("a");
  cluster_.Join("b");
  cluster_.Run(absl::Seconds(11), {"b"});
  ExpectMovedTo("b");
}

TEST_F(Leaving, LastsUntilNewWorkerSendsHello) {
  cluster_.SendLeaving("a");
  cluster_.ExitAll(job_, Stopped());
  EXPECT_EQ(cluster_.State(job_), v1::QUEUED);
  EXPECT_EQ(cluster_.Get(job_).waits(0).missing(1).reason(),
            "leaving: its worker is shutting down");
  cluster_.CloseStream("a");
  cluster_.Join("a");
  EXPECT_TRUE(cluster_.GetNode("a").leaving()) << "it is the same worker";
  EXPECT_EQ(cluster_.State(job_), v1::QUEUED);
  cluster_.CloseStream("a");
  cluster_.Join("a", 1, 2);
  EXPECT_FALSE(cluster_.GetNode("a").leaving());
  ExpectMovedTo("a");
}

}  // namespace
}  // namespace muster::core
