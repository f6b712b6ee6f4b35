// Leases of nodes and of ranks: a silent node first gets no more ranks, and loses its ranks only
// when the leases of their jobs end.
#include "absl/strings/str_cat.h"
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
using testing::FindSent;
using testing::Harness;
using ::testing::HasSubstr;
using testing::MakeCommandSpec;
using testing::MakeSpec;
using ::testing::Not;
using ::testing::SizeIs;
using Message = v1::CoordinatorMessage;

Options WithJobLease(absl::Duration lease) {
  Options options = Harness::DefaultOptions();
  options.job_lease = lease;
  return options;
}

class JobLeases : public ::testing::Test {
 protected:
  // A running job whose nodes must be free.
  std::string Run(uint32_t nodes, absl::Duration failure_timeout = absl::Seconds(30),
                  uint32_t ranks_per_node = 1) {
    v1::JobSpec spec = MakeCommandSpec(nodes, ranks_per_node);
    *spec.mutable_failure_timeout() = ToProto(failure_timeout);
    const std::string job = cluster_.Submit(std::move(spec));
    cluster_.BringUp(job);
    return job;
  }

  // Reconnects the node with its ranks.
  void Reconnect(const std::string& node, const std::string& job, uint32_t rank) {
    v1::Hello hello = cluster_.MakeHello(node, 1);
    *hello.add_inventory() = cluster_.MakeInventory(job, {Harness::MakeReport(rank, v1::STARTED)});
    cluster_.Open(hello);
  }

  v1::LeaseAnswer Ask(const std::string& through, const std::string& node, const std::string& job,
                      uint64_t generation = 1, uint64_t incarnation = 1) {
    v1::WorkerMessage message;
    v1::LeaseQuestion& question = *message.mutable_lease_question();
    question.set_id(5);
    question.set_node_name(node);
    question.set_incarnation(incarnation);
    question.add_generations()->set_job_id(job);
    question.mutable_generations(0)->set_generation(generation);
    const Effects effects = cluster_.SendMessage(through, message);
    const Message* const answer =
        FindSent(effects, cluster_.session(through), Message::kLeaseAnswer);
    return answer == nullptr ? v1::LeaseAnswer() : answer->lease_answer();
  }

  Harness cluster_{WithJobLease(absl::Seconds(30))};
  int submitted_ = 0;
};

TEST_F(JobLeases, LaunchCarriesLeaseOfJob) {
  cluster_.Join("a", 2);
  const Message* launch = nullptr;
  const auto lease_of = [&](absl::Duration failure_timeout) {
    v1::JobSpec spec = MakeCommandSpec(1);
    *spec.mutable_failure_timeout() = ToProto(failure_timeout);
    const Effects effects = cluster_.Step(
        SubmitJob{RequestId(900), JobId(absl::StrCat("j", ++submitted_)), std::move(spec), ""});
    launch = FindSent(effects, cluster_.session("a"), Message::kLaunch);
    return launch == nullptr ? absl::ZeroDuration() : FromProto(launch->launch().job_lease());
  };
  EXPECT_EQ(lease_of(absl::Seconds(5)), absl::Seconds(30)) << "not less than --job-lease";
  EXPECT_EQ(lease_of(absl::Minutes(10)), absl::Minutes(10));
}

TEST_F(JobLeases, SilentNodeGetsNoRanksButKeepsItsOwn) {
  cluster_.Join("a", 2);
  const std::string job = Run(1);
  cluster_.Run(absl::Seconds(11));
  EXPECT_EQ(cluster_.StateOf("a"), v1::SUSPECT);
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
  EXPECT_THAT(cluster_.EventTypes(job), Contains(events::kNodeSuspect));
  EXPECT_EQ(cluster_.State(cluster_.Submit(MakeCommandSpec(1))), v1::QUEUED);
  cluster_.Run(absl::Seconds(18));
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
  EXPECT_EQ(cluster_.GetNode("a").state(), v1::SUSPECT);
  cluster_.Run(absl::Seconds(2));
  EXPECT_EQ(cluster_.StateOf("a"), v1::LOST);
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
  EXPECT_EQ(cluster_.Get(job).reason(), reasons::kNodeLost);
  EXPECT_THAT(cluster_.Get(job).message(), HasSubstr("no heartbeat for 30s"));
}

TEST_F(JobLeases, NodeWithoutRanksIsLostAfterItsLease) {
  cluster_.Join("a");
  cluster_.Run(absl::Seconds(11));
  EXPECT_EQ(cluster_.StateOf("a"), v1::LOST);
}

TEST_F(JobLeases, SilentWorkerThatReturnsContinues) {
  cluster_.Join("a");
  const std::string job = Run(1);
  cluster_.Run(absl::Seconds(25));
  Reconnect("a", job, 0);
  EXPECT_EQ(cluster_.StateOf("a"), v1::READY);
  cluster_.Run(absl::Seconds(40), {"a"});
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
  EXPECT_EQ(cluster_.Get(job).generation(), 1u);
}

TEST_F(JobLeases, LongFailureTimeoutKeepsRanks) {
  cluster_.Join("a", 2);
  const std::string patient = Run(1, absl::Minutes(10));
  const std::string other = Run(1, absl::Seconds(5));
  cluster_.Run(absl::Seconds(31));
  EXPECT_EQ(cluster_.State(other), v1::QUEUED);
  EXPECT_EQ(cluster_.State(patient), v1::RUNNING);
  EXPECT_EQ(cluster_.StateOf("a"), v1::SUSPECT);
  cluster_.Run(absl::Minutes(9));
  EXPECT_EQ(cluster_.State(patient), v1::RUNNING);
  cluster_.Run(absl::Seconds(30));
  EXPECT_EQ(cluster_.State(patient), v1::QUEUED);
  EXPECT_EQ(cluster_.StateOf("a"), v1::LOST);
}

TEST_F(JobLeases, ReturningWorkerStopsRanksThatWereLost) {
  cluster_.Join("a", 2);
  const std::string patient = Run(1, absl::Minutes(10));
  const std::string other = Run(1, absl::Seconds(5));
  cluster_.Run(absl::Seconds(31));
  v1::Hello hello = cluster_.MakeHello("a", 2);
  for (const std::string& job : {patient, other}) {
    *hello.add_inventory() = cluster_.MakeInventory(job, {Harness::MakeReport(0, v1::STARTED)});
  }
  const Effects effects = cluster_.Open(hello);
  EXPECT_EQ(CountSent(effects, cluster_.session("a"), Message::kStop), 1);
  EXPECT_EQ(FindSent(effects, cluster_.session("a"), Message::kStop)->stop().job_id(), other);
  EXPECT_EQ(cluster_.State(patient), v1::RUNNING);
}

TEST_F(JobLeases, BrokenStreamAloneLosesNothingWithinLease) {
  cluster_.Join("a");
  const std::string job = Run(1);
  cluster_.CloseStream("a");
  cluster_.Run(absl::Seconds(29));
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
  Reconnect("a", job, 0);
  cluster_.Run(absl::Seconds(20), {"a"});
  EXPECT_EQ(cluster_.Get(job).generation(), 1u);
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
}

TEST_F(JobLeases, RestartedCoordinatorGrantsFullLease) {
  cluster_.Join("a");
  const std::string job = Run(1, absl::Minutes(1));
  cluster_.Advance(absl::Hours(5));
  cluster_.Restart();
  cluster_.Run(absl::Seconds(58));
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
  Reconnect("a", job, 0);
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
  cluster_.Restart();
  cluster_.Run(absl::Seconds(61));
  EXPECT_EQ(cluster_.State(job), v1::QUEUED);
}

TEST_F(JobLeases, RestartedCoordinatorGrantsFullLeaseToNodeWhoseRanksHaveEnded) {
  cluster_.Join("a");
  cluster_.Join("b");
  const std::string job = Run(2);
  cluster_.ReportExit("b", job, 1, testing::ExitWith(0));
  cluster_.Restart();
  Reconnect("a", job, 0);
  cluster_.Run(absl::Seconds(28), {"a"});
  EXPECT_EQ(cluster_.StateOf("b"), v1::SUSPECT);
  cluster_.Run(absl::Seconds(3), {"a"});
  EXPECT_EQ(cluster_.StateOf("b"), v1::LOST);
  EXPECT_EQ(cluster_.State(job), v1::RUNNING);
}

// The shims of running ranks follow the lease that was sent with their Launch.
TEST_F(JobLeases, RestartWithOtherFlagKeepsLeaseOfRunningRanks) {
  Harness cluster(WithJobLease(absl::Seconds(60)));
  cluster.Join("a");
  const std::string job = cluster.Submit(MakeCommandSpec(1));
  cluster.BringUp(job);
  Harness restarted(WithJobLease(absl::Seconds(15)));
  for (const auto& [key, value] : cluster.records()) restarted.PutRecord(key, value);
  restarted.Restart();
  restarted.Run(absl::Seconds(58));
  EXPECT_EQ(restarted.State(job), v1::RUNNING);
  restarted.Run(absl::Seconds(3));
  EXPECT_EQ(restarted.State(job), v1::QUEUED);
}

TEST_F(JobLeases, CoordinatorLagExtendsThem) {
  cluster_.Join("a", 2);
  const std::string patient = Run(1, absl::Seconds(40));
  const std::string other = Run(1);
  cluster_.Run(absl::Seconds(11));
  cluster_.Advance(absl::Seconds(60));
  cluster_.Step(Tick{absl::Seconds(60)});
  EXPECT_EQ(cluster_.State(other), v1::RUNNING);
  cluster_.Run(absl::Seconds(20));
  EXPECT_EQ(cluster_.State(other), v1::QUEUED);
  EXPECT_EQ(cluster_.State(patient), v1::RUNNING);
  cluster_.Run(absl::Seconds(11));
  EXPECT_EQ(cluster_.State(patient), v1::QUEUED);
}

// The extension of a lease ends with the next message of the node, or when the coordinator
// restarts.
TEST_F(JobLeases, AnswerDoesNotCountExtension) {
  cluster_.Join("a");
  cluster_.Join("b");
  const std::string job = Run(1);
  const std::string node = cluster_.Get(job).ranks(0).node();
  cluster_.Step(Tick{absl::Seconds(20)});
  EXPECT_EQ(FromProto(Ask(node == "a" ? "b" : "a", node, job).generations(0).time_left()),
            absl::Seconds(30));
}

TEST_F(JobLeases, WaitNamesTimeUntilRankIsLost) {
  cluster_.Join("a");
  cluster_.Join("b");
  const std::string job = cluster_.Submit(MakeCommandSpec(2));
  cluster_.ReportPhase("a", job, 0, v1::STARTED);
  cluster_.Run(absl::Seconds(12), {"a"});
  ASSERT_THAT(cluster_.Get(job).waits(), SizeIs(1));
  EXPECT_THAT(cluster_.Get(job).waits(0).missing(0).reason(),
              HasSubstr("its node is SUSPECT and the rank will be lost in 18.0 s"));
}

// The worker returns after the shim has ended the rank, but before the coordinator lost it.
TEST_F(JobLeases, RankWhoseLeaseExpiredCountsAsLostNode) {
  cluster_.Join("a");
  const std::string job = Run(1);
  cluster_.CloseStream("a");
  cluster_.Run(absl::Seconds(28));
  v1::RankReport exited = Harness::MakeReport(0, v1::EXITED);
  exited.mutable_exit()->set_signal(9);
  exited.mutable_exit()->set_lease_expired(true);
  v1::Hello hello = cluster_.MakeHello("a", 1);
  *hello.add_inventory() = cluster_.MakeInventory(job, {exited});
  cluster_.Open(hello);
  const v1::Job again = cluster_.Get(job);
  EXPECT_EQ(again.generation(), 2u);
  EXPECT_EQ(again.first_failure().reason(), reasons::kNodeLost);
  EXPECT_EQ(again.restarts_used(), 0u);
  EXPECT_THAT(again.first_failure().message(), HasSubstr("its lease expired"));
}

// ---- Witnesses among the ranks

TEST_F(JobLeases, AccusationLosesOnlyRanksOfItsJob) {
  cluster_.Join("a");
  cluster_.Join("b", 2);
  const std::string wide = cluster_.Submit(MakeSpec(2));
  cluster_.BringUp(wide);
  const std::string narrow = Run(1);
  ASSERT_EQ(cluster_.Get(narrow).ranks(0).node(), "b");
  cluster_.CloseStream("b");
  v1::RankReport report = Harness::MakeReport(0, v1::CONNECTED);
  report.mutable_failure()->set_peer_rank(1);
  report.mutable_failure()->set_code(14);
  cluster_.Report("a", wide, report);
  EXPECT_EQ(cluster_.Get(wide).first_failure().reason(), reasons::kNodeLost);
  EXPECT_EQ(cluster_.State(narrow), v1::RUNNING);
  EXPECT_EQ(cluster_.StateOf("b"), v1::SUSPECT);
  cluster_.Run(absl::Seconds(31), {"a"});
  EXPECT_EQ(cluster_.StateOf("b"), v1::LOST);
  EXPECT_THAT(cluster_.EventTypes(narrow), Contains(events::kNodeLost));
}

// Its ranks may still run there, and nothing keeps them from writing the same files as the next.
TEST_F(JobLeases, AccusationLosesNoRanksOfCommandJobs) {
  cluster_.Join("a");
  cluster_.Join("b");
  const std::string job = Run(2);
  cluster_.CloseStream("b");
  v1::RankReport report = Harness::MakeReport(0, v1::STARTED);
  report.mutable_failure()->set_peer_rank(1);
  report.mutable_failure()->set_code(14);
  cluster_.Report("a", job, report);
  EXPECT_EQ(cluster_.StateOf("b"), v1::SUSPECT);
  EXPECT_THAT(cluster_.EventTypes(job), Not(Contains(events::kNodeLost)));
}

// A rank on the same node is no evidence that the node is cut off.
TEST_F(JobLeases, AccusationOnSameNodeLosesNothing) {
  cluster_.Join("a", 2);
  const std::string job = Run(1, absl::Seconds(30), /*ranks_per_node=*/2);
  v1::RankReport report = Harness::MakeReport(0, v1::STARTED);
  report.mutable_failure()->set_peer_rank(1);
  report.mutable_failure()->set_code(14);
  cluster_.Report("a", job, report);
  cluster_.CloseStream("a");
  EXPECT_EQ(cluster_.StateOf("a"), v1::SUSPECT);
  EXPECT_THAT(cluster_.EventTypes(job), Not(Contains(events::kNodeLost)));
}

// ---- Questions through peers

TEST_F(JobLeases, AnswerNamesTimeLeft) {
  cluster_.Join("a");
  cluster_.Join("b");
  const std::string job = Run(1);
  cluster_.Run(absl::Seconds(12), {"b"});
  const v1::LeaseAnswer answer = Ask("b", "a", job);
  EXPECT_EQ(answer.id(), 5u);
  ASSERT_THAT(answer.generations(), SizeIs(1));
  EXPECT_EQ(answer.generations(0).job_id(), job);
  EXPECT_FALSE(answer.generations(0).lost());
  EXPECT_EQ(FromProto(answer.generations(0).time_left()), absl::Seconds(18));
  EXPECT_EQ(answer.cluster_id(), cluster_.core().store().cluster_id);
  EXPECT_EQ(answer.commit_index(), cluster_.core().store().commit_index);
}

TEST_F(JobLeases, AnswerReportsLostRanks) {
  cluster_.Join("a");
  cluster_.Join("b");
  const std::string job = Run(1);
  EXPECT_TRUE(Ask("b", "a", job, /*generation=*/2).generations(0).lost());
  cluster_.Run(absl::Seconds(31), {"b"});
  EXPECT_TRUE(Ask("b", "a", job).generations(0).lost());
}

TEST_F(JobLeases, AnswerReportsReplacedWorker) {
  cluster_.Join("a");
  cluster_.Join("b");
  const std::string job = Run(1);
  cluster_.CloseStream("a");
  cluster_.Join("a", 1, /*incarnation=*/2);
  EXPECT_TRUE(Ask("b", "a", job, 1, /*incarnation=*/1).generations(0).lost());
}

// An empty store must not end the ranks of a job that it never had.
TEST_F(JobLeases, AnswerOmitsUnknownJobs) {
  cluster_.Join("b");
  const v1::LeaseAnswer answer = Ask("b", "a", "elsewhere");
  EXPECT_EQ(answer.id(), 5u);
  EXPECT_THAT(answer.generations(), SizeIs(0));
}

// ---- Peers

class PeersTest : public ::testing::Test {
 protected:
  Effects Join(const std::string& node) {
    v1::Hello hello = cluster_.MakeHello(node, 1);
    hello.set_peer_address(":7");
    hello.set_advertise_address(node);
    return cluster_.Open(hello);
  }
  std::vector<std::string> NewPeers(const std::string& node) {
    const Effects effects = cluster_.SendHeartbeat(node);
    const auto& peers =
        FindSent(effects, cluster_.session(node), Message::kHeartbeatAck)->heartbeat_ack().peers();
    return {peers.begin(), peers.end()};
  }

  Harness cluster_;
};

TEST_F(PeersTest, WelcomeNamesOtherWorkers) {
  Join("a");
  Join("b");
  const Effects effects = Join("c");
  EXPECT_THAT(FindSent(effects, cluster_.session("c"), Message::kWelcome)->welcome().peers(),
              ElementsAre("a:7", "b:7"));
}

TEST_F(PeersTest, AcknowledgementNamesChangedPeersOnce) {
  Join("a");
  EXPECT_THAT(NewPeers("a"), ElementsAre());
  Join("b");
  EXPECT_THAT(NewPeers("a"), ElementsAre("b:7"));
  EXPECT_THAT(NewPeers("a"), ElementsAre());
  cluster_.CloseStream("b");
  Join("c");
  EXPECT_THAT(NewPeers("a"), ElementsAre("b:7", "c:7")) << "b may still be reachable for a";
}

TEST_F(PeersTest, AreNextEightByNameInLargeClusters) {
  for (int i = 100; i < 229; ++i) Join(absl::StrCat("n", i));
  EXPECT_THAT(NewPeers("n112"), ElementsAre("n113:7", "n114:7", "n115:7", "n116:7", "n117:7",
                                            "n118:7", "n119:7", "n120:7"));
  EXPECT_THAT(NewPeers("n227"), ElementsAre("n228:7", "n100:7", "n101:7", "n102:7", "n103:7",
                                            "n104:7", "n105:7", "n106:7"));
}

}  // namespace
}  // namespace muster::core
