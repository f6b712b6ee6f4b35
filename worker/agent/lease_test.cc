// Tests of leases with real agents, shims and ranks, and scripted coordinators.
#include <signal.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "proto/muster/v1/worker.grpc.pb.h"
#include "worker/agent/testing/agent_fixture.h"
#include "worker/agent/testing/scripted_coordinator.h"
#include "worker/shim/clock.h"
#include "worker/shim/protocol.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;

constexpr char kToken[] = "a-token-of-workers";

class LeaseTest : public AgentTest {
 protected:
  void SetUp() override {
    AgentTest::SetUp();
    token_ = kToken;
  }

  void TearDown() override {
    peer_.reset();
    AgentTest::TearDown();
    peer_coordinator_.reset();
  }

  // Starts a rank that runs until it is ended, with this lease; returns its process id.
  pid_t StartRank(absl::Duration lease) {
    v1::CoordinatorMessage launch = Launch("exec sleep 600");
    *launch.mutable_launch()->mutable_job_lease() = ToProto(lease);
    coordinator_->Send(launch);
    return static_cast<pid_t>(WaitForRank(0, IsStarted).pid());
  }

  static bool IsAlive(pid_t pid) { return kill(pid, 0) == 0; }
  // Returns whether the rank lives at every moment for that long.
  static bool LivesFor(pid_t pid, absl::Duration how_long) {
    const absl::Time end = absl::Now() + how_long;
    while (absl::Now() < end) {
      if (!IsAlive(pid)) return false;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return true;
  }

  // Blocks the agent's loop in a write to a disk that does not answer, until UnblockLoop is called
  // with the result.
  std::string BlockLoop() {
    const std::string file = "data/jobs/job-1/generation-1/world.pb.tmp";
    MakeFifo(file);
    v1::CoordinatorMessage world;
    world.mutable_world()->set_job_id(kJob);
    world.mutable_world()->set_generation(1);
    coordinator_->Send(world);
    return file;
  }
  void UnblockLoop(const std::string& file) { Read(Path(file)); }

  // Waits for the exit record of the rank's shim.
  std::optional<shim::ExitRecord> AwaitExitRecord() {
    const std::string path = directory_ + "/data/jobs/job-1/generation-1/rank-0000/exit";
    const absl::Time deadline = absl::Now() + kPatience;
    while (absl::Now() < deadline) {
      const auto text = shim::ReadFile(path);
      if (text.has_value()) {
        if (auto record = shim::DecodeExitRecord(*text)) return record;
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    return std::nullopt;
  }

  // Starts another worker with a coordinator of its own, and makes it the peer of the first.
  void StartPeer() {
    peer_coordinator_ = std::make_unique<ScriptedCoordinator>();
    AgentOptions options = Options();
    options.coordinator = peer_coordinator_->address();
    options.name = "node-b";
    options.data_dir = directory_ + "/peer";
    auto peer = Agent::Start(options, [](const absl::Status&) {});
    ASSERT_TRUE(peer.ok()) << peer.status();
    peer_ = *std::move(peer);
    ASSERT_TRUE(peer_coordinator_->WaitForSessions(1));
    coordinator_->SetPeers({peer_coordinator_->hello().peer_address()});
  }

  // Waits for a question about the rank that the peer forwards.
  v1::LeaseQuestion AwaitQuestion() {
    v1::WorkerMessage message;
    EXPECT_TRUE(peer_coordinator_->WaitFor(
        [](const v1::WorkerMessage& m) { return m.has_lease_question(); }, &message));
    return message.lease_question();
  }

  // Answers all questions that the peer forwards, until `over`.
  template <typename Over>
  void AnswerQuestions(bool lost, SteadyTime loss, const Over& over) {
    size_t seen = 0;
    const absl::Time deadline = absl::Now() + kPatience;
    while (!over() && absl::Now() < deadline) {
      const std::vector<v1::WorkerMessage> messages = peer_coordinator_->messages();
      for (; seen < messages.size(); ++seen) {
        if (!messages[seen].has_lease_question()) continue;
        const v1::LeaseQuestion& question = messages[seen].lease_question();
        v1::CoordinatorMessage message;
        v1::LeaseAnswer& answer = *message.mutable_lease_answer();
        answer.set_id(question.id());
        answer.set_cluster_id(answering_store_.cluster_id());
        answer.set_commit_index(answering_store_.commit_index());
        for (const v1::LeasedGeneration& asked : question.generations()) {
          v1::LeasedGeneration& leased = *answer.add_generations();
          leased = asked;
          leased.set_lost(lost);
          const SteadyTime now(absl::Milliseconds(shim::BootMs()));
          if (!lost) *leased.mutable_time_left() = ToProto(loss - now);
        }
        peer_coordinator_->Send(message);
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
  }

  v1::JoinCluster answering_store_;
  // Destroyed before the coordinators.
  std::unique_ptr<ScriptedCoordinator> peer_coordinator_;
  std::unique_ptr<Agent> peer_;
};

TEST_F(LeaseTest, AcknowledgedHeartbeatsExtendLease) {
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(2));
  EXPECT_TRUE(LivesFor(pid, absl::Seconds(4)));
}

TEST_F(LeaseTest, RanksOfKilledWorkerEndWithinLease) {
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(2));
  agent_.reset();
  const absl::Time gone = absl::Now();
  const auto record = AwaitExitRecord();
  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(record->lease_expired);
  EXPECT_FALSE(IsAlive(pid));
  EXPECT_LT(absl::Now() - gone, absl::Seconds(10));
  StartAgent();
  const v1::RankReport report = WaitForRank(0, IsExited);
  EXPECT_TRUE(report.exit().lease_expired());
  EXPECT_FALSE(report.exit().stopped_by_worker());
  EXPECT_EQ(report.exit().signal(), SIGKILL);
}

TEST_F(LeaseTest, RestartedWorkerExtendsLease) {
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(3));
  agent_.reset();
  ASSERT_TRUE(LivesFor(pid, absl::Seconds(1)));
  StartAgent();
  EXPECT_TRUE(LivesFor(pid, absl::Seconds(4)));
}

// A rank without a lease, from an older coordinator, is not ended.
TEST_F(LeaseTest, LaunchWithoutLeaseHasNoDeadline) {
  StartBoth();
  const pid_t pid = StartRank(absl::ZeroDuration());
  coordinator_->SetAcknowledging(false);
  EXPECT_TRUE(LivesFor(pid, absl::Seconds(2)));
}

// As during a launch with a name service that does not answer, or a stalled disk.
TEST_F(LeaseTest, BlockedLoopDoesNotEndRanks) {
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(2));
  const std::string blocked = BlockLoop();
  EXPECT_TRUE(LivesFor(pid, absl::Seconds(4)));
  UnblockLoop(blocked);
  // Acknowledgements that waited for the loop are old by now.
  EXPECT_TRUE(LivesFor(pid, absl::Seconds(1)));
  SendStop(absl::ZeroDuration());
  EXPECT_TRUE(WaitForRank(0, IsExited).exit().stopped_by_worker());
}

// The coordinator gives up ranks that its directive does not end.
TEST_F(LeaseTest, BlockedLoopDoesNotExtendLeaseOfRanksToBeStopped) {
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(2));
  const std::string blocked = BlockLoop();
  SendStop(absl::Seconds(100));
  const auto record = AwaitExitRecord();
  EXPECT_TRUE(record.has_value() && record->lease_expired);
  EXPECT_FALSE(IsAlive(pid));
  UnblockLoop(blocked);
  WaitForRank(0, IsExited);
}

// Its process has ended, so nothing declares the ranks lost.
TEST_F(LeaseTest, RefusedConnectionsExtendLease) {
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(4));
  coordinator_.reset();
  EXPECT_TRUE(LivesFor(pid, absl::Seconds(7)));
}

// A peer that has lost touch with the coordinator as well may be behind the same failed switch.
TEST_F(LeaseTest, SilenceThatPeersConfirmDoesNotExtendLease) {
  StartPeer();
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(4));
  peer_coordinator_->SetAcknowledging(false);
  coordinator_->SetAcknowledging(false);
  const auto record = AwaitExitRecord();
  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(record->lease_expired);
  EXPECT_FALSE(IsAlive(pid));
}

TEST_F(LeaseTest, RanksEndBeforeTimeThatCoordinatorLeft) {
  StartPeer();
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(3));
  const SteadyTime loss(absl::Milliseconds(shim::BootMs()) + absl::Seconds(5));
  coordinator_->SetAcknowledging(false);
  AnswerQuestions(/*lost=*/false, loss, [&] { return !IsAlive(pid); });
  EXPECT_LT(SteadyTime(absl::Milliseconds(shim::BootMs())), loss);
  const v1::LeaseQuestion question = AwaitQuestion();
  EXPECT_EQ(question.node_name(), "node-a");
  EXPECT_EQ(question.incarnation(), coordinator_->hello().incarnation());
  EXPECT_EQ(question.generations(0).job_id(), kJob);
  EXPECT_EQ(question.generations(0).generation(), 1u);
  const auto record = AwaitExitRecord();
  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(record->lease_expired);
}

// A coordinator with a restored store knows the job, but not that its ranks run here: they end with
// their lease, not at once.
TEST_F(LeaseTest, AnswerFromOlderStoreIsIgnored) {
  coordinator_->SetCluster("a", 20, "s1");
  StartPeer();
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(4));
  coordinator_->SetAcknowledging(false);
  answering_store_.set_cluster_id("a");
  answering_store_.set_commit_index(19);
  AnswerQuestions(/*lost=*/true, {}, [&] { return !IsAlive(pid); });
  EXPECT_EQ(AwaitQuestion().node_name(), "node-a");
  EXPECT_EQ(AwaitQuestion().coordinator_start(), "s1");
  const auto record = AwaitExitRecord();
  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(record->lease_expired);
  EXPECT_FALSE(record->stopped);
}

TEST_F(LeaseTest, LostRanksEndAtOnce) {
  StartPeer();
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(9));
  const absl::Time start = absl::Now();
  coordinator_->SetAcknowledging(false);
  AnswerQuestions(/*lost=*/true, {}, [&] { return !IsAlive(pid); });
  EXPECT_FALSE(IsAlive(pid));
  EXPECT_LT(absl::Now() - start, absl::Seconds(8)) << "not only at the end of the lease";
  const auto record = AwaitExitRecord();
  ASSERT_TRUE(record.has_value());
  EXPECT_TRUE(record->stopped);
}

// The next worker, which may start without a coordinator, knows the peers of its predecessor.
TEST_F(LeaseTest, RestartedWorkerAsksPeers) {
  StartPeer();
  StartBoth();
  const pid_t pid = StartRank(absl::Seconds(9));
  agent_.reset();
  coordinator_->Refuse(static_cast<int>(absl::StatusCode::kUnavailable), "no route");
  StartAgent();
  AnswerQuestions(/*lost=*/true, {}, [&] { return !IsAlive(pid); });
  EXPECT_FALSE(IsAlive(pid));
}

TEST_F(LeaseTest, PeerRefusesWrongToken) {
  StartBoth();
  const auto stub = v1::PeerService::NewStub(grpc::CreateChannel(
      coordinator_->hello().peer_address(), grpc::InsecureChannelCredentials()));
  for (const char* token : {"", "Bearer another-token"}) {
    grpc::ClientContext context;
    if (*token != '\0') context.AddMetadata("authorization", token);
    v1::PeerAnswer answer;
    const grpc::Status status = stub->AskLease(&context, v1::LeaseQuestion(), &answer);
    EXPECT_EQ(status.error_code(), grpc::UNAUTHENTICATED) << status.error_message();
  }
}

TEST_F(LeaseTest, PlaintextPeerListenBeyondLoopbackIsRefused) {
  AgentOptions options = Options();
  options.peer_listen = "0.0.0.0:0";
  EXPECT_THAT(
      std::string(CheckOptions(options).message()),
      HasSubstr("--peer-listen=0.0.0.0:0 is reachable from other machines; set --tls-cert"));
}

}  // namespace
}  // namespace muster::agent
