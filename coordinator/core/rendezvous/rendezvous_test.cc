#include "coordinator/core/rendezvous/rendezvous.h"

#include "coordinator/core/testing/parts.h"
#include "coordinator/core/testing/totals.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using testing::Advance;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeContext;
using testing::MakeSession;
using ::testing::Not;
using testing::Open;
using testing::Sent;
using ::testing::SizeIs;
using testing::Start;
using testing::Submit;
using Message = v1::CoordinatorMessage;

// A job with rank 0 on node a (session 1) and rank 1 on node b (session 2).
class RendezvousTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Open(sessions_, MakeSession(1, "a"));
    Open(sessions_, MakeSession(2, "b"));
    job_ = &Submit(jobs_, "job");
    v1::JobSpec spec;
    spec.mutable_train();
    job_->SetSpec(spec);
    Start(jobs_, *job_, {"a", "b"});
    rendezvous_.Begin(*job_);
    context_.effects = Effects();
  }
  const Node& node(const std::string& name) { return nodes_.at(NodeName(name)); }
  void ReachAll(v1::RankPhase phase) {
    for (RankState& rank : job_->generation->ranks) job_->generation->Reach(rank, phase);
  }
  void JoinAll() {
    ReachAll(v1::JOINED);
    for (uint32_t rank : {0, 1}) rendezvous_.RecordJoin(*job_, rank, v1::JoinInfo());
  }
  void Put(const std::string& from, const std::string& key, const std::string& value,
           uint64_t generation = 1) {
    v1::PutKey put;
    put.set_job_id("job");
    put.set_generation(generation);
    put.set_key(key);
    put.set_value(value);
    rendezvous_.PutKey(node(from), put);
  }
  void Get(const std::string& from, const std::string& key) {
    v1::GetKey get;
    get.set_job_id("job");
    get.set_generation(1);
    get.set_key(key);
    rendezvous_.GetKey(node(from), get);
  }
  void Arrive(const std::string& from, uint32_t rank, uint64_t sequence = 1) {
    v1::ArriveBarrier arrive;
    arrive.set_job_id("job");
    arrive.set_generation(1);
    arrive.mutable_barrier()->set_group("world");
    arrive.mutable_barrier()->set_sequence(sequence);
    arrive.add_ranks(rank);
    rendezvous_.ArriveAtBarrier(node(from), arrive);
  }
  // The code of the last release that the session received; -1 if none.
  int ReleaseCode(uint64_t session) {
    const auto sent = Sent(context_, session, Message::kReleaseBarrier);
    return sent.empty() ? -1 : sent.back().release_barrier().code();
  }

  Context context_ = MakeContext();
  Nodes all_nodes_{context_};
  NodeTable& nodes_ = all_nodes_.table;
  NodeSessions& sessions_ = all_nodes_.sessions;
  Jobs jobs_{context_};
  Rendezvous rendezvous_{jobs_.table, jobs_.eviction, nodes_, context_};
  Job* job_ = nullptr;
};

TEST_F(RendezvousTest, SendsWorldWhenTheLastRankHasJoined) {
  job_->generation->Reach(job_->generation->ranks[0], v1::JOINED);
  rendezvous_.RecordJoin(*job_, 0, v1::JoinInfo());
  EXPECT_FALSE(rendezvous_.FormWorld(*job_).has_value());
  EXPECT_THAT(context_.effects.sends, IsEmpty());
  JoinAll();
  EXPECT_FALSE(rendezvous_.FormWorld(*job_).has_value());
  ASSERT_THAT(Sent(context_, 1, Message::kWorld), SizeIs(1));
  EXPECT_EQ(Sent(context_, 2, Message::kWorld).at(0).world().node_rank(), 1u);
  // Each session receives the world once.
  rendezvous_.SendWorld(*job_, 0);
  EXPECT_THAT(Sent(context_, 1, Message::kWorld), SizeIs(1));
  rendezvous_.OnNewSession(*job_, 0);
  rendezvous_.SendWorld(*job_, 0);
  EXPECT_THAT(Sent(context_, 1, Message::kWorld), SizeIs(2));
}

TEST_F(RendezvousTest, MismatchIsNotRetryable) {
  v1::JoinInfo other;
  other.add_fingerprint()->set_name("torch");
  rendezvous_.RecordJoin(*job_, 1, other);
  JoinAll();  // the first JoinInfo of a rank counts
  const auto failure = rendezvous_.FormWorld(*job_);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank(), 1u);
  EXPECT_EQ(failure->node(), "b");
  EXPECT_TRUE(failure->exit().failure().not_retryable());
  EXPECT_THAT(Sent(context_, 1, Message::kWorld), IsEmpty());
}

TEST_F(RendezvousTest, AdvancesPhasesUntilAllRanksAreConnected) {
  const TimerKey deadline{TimerKey::Kind::kRendezvous, "job"};
  ReachAll(v1::STARTED);
  EXPECT_FALSE(rendezvous_.AdvancePhases(*job_));
  EXPECT_TRUE(context_.timers.Get(deadline).has_value());
  ReachAll(v1::CONNECTED);
  EXPECT_TRUE(rendezvous_.AdvancePhases(*job_));
  EXPECT_FALSE(context_.timers.Get(deadline).has_value());
  EXPECT_THAT(context_.stats.Take().seconds, SizeIs(3));
}

TEST_F(RendezvousTest, CommandJobOnlyNeedsStartedRanks) {
  v1::JobSpec spec;
  spec.add_command("true");
  job_->SetSpec(spec);
  ReachAll(v1::STARTED);
  EXPECT_TRUE(rendezvous_.AdvancePhases(*job_));
}

TEST_F(RendezvousTest, TimeOutNamesTheMissingRank) {
  job_->generation->Reach(job_->generation->ranks[0], v1::STARTED);
  Advance(context_, absl::Seconds(60));
  const std::optional<v1::FirstFailure> failure = rendezvous_.OnPhaseTimer(*job_);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->reason(), reasons::kRendezvousTimedOut);
  EXPECT_EQ(failure->rank(), 1u);
  EXPECT_THAT(failure->message(), HasSubstr("rank 1 (node b, phase PLACED"));
  EXPECT_TRUE(Sent(context_, 1, Message::kWaitNotice).at(0).wait_notice().timed_out());
}

TEST_F(RendezvousTest, PhaseLastsWhileAllAwaitedRanksMakeProgress) {
  const TimerKey deadline{TimerKey::Kind::kRendezvous, "job"};
  std::vector<RankState>& ranks = job_->generation->ranks;
  Advance(context_, absl::Seconds(50));
  ranks[0].last_progress = ranks[1].last_progress = context_.now.steady;
  const SteadyTime progress = context_.now.steady;
  Advance(context_, absl::Seconds(10));
  EXPECT_FALSE(rendezvous_.OnPhaseTimer(*job_).has_value());
  EXPECT_EQ(context_.timers.Get(deadline), progress + absl::Seconds(60));
  EXPECT_THAT(Sent(context_, 1, Message::kWaitNotice), IsEmpty());
}

TEST_F(RendezvousTest, NamesTheRankWithoutProgressWhileAnotherWorks) {
  Advance(context_, absl::Seconds(55));
  job_->generation->ranks[0].last_progress = context_.now.steady;
  Advance(context_, absl::Seconds(5));
  const std::optional<v1::FirstFailure> failure = rendezvous_.OnPhaseTimer(*job_);
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->rank(), 1u);
  EXPECT_EQ(failure->node(), "b");
  EXPECT_THAT(failure->message(), Not(HasSubstr("rank 0")));
}

TEST_F(RendezvousTest, SendsKeyToNodesThatWaitForIt) {
  Get("b", "id");
  EXPECT_THAT(context_.effects.sends, IsEmpty());
  Put("a", "id", "x");
  ASSERT_THAT(Sent(context_, 2, Message::kKeyValue), SizeIs(1));
  EXPECT_EQ(Sent(context_, 2, Message::kKeyValue)[0].key_value().value(), "x");
  EXPECT_THAT(Sent(context_, 1, Message::kKeyValue), SizeIs(1));
}

TEST_F(RendezvousTest, RejectsKeysOfAnotherGeneration) {
  Put("a", "id", "x", /*generation=*/2);
  EXPECT_EQ(Sent(context_, 1, Message::kKeyValue).at(0).key_value().code(),
            static_cast<int>(absl::StatusCode::kAborted));
  Get("b", "id");
  EXPECT_THAT(Sent(context_, 2, Message::kKeyValue), IsEmpty());
}

TEST_F(RendezvousTest, LastArrivalReleasesAllNodes) {
  Arrive("a", 0);
  EXPECT_EQ(ReleaseCode(1), -1);
  ASSERT_THAT(rendezvous_.ListWaits(), SizeIs(2));  // the rendezvous and the barrier
  Arrive("b", 1);
  EXPECT_EQ(ReleaseCode(1), 0);
  EXPECT_EQ(ReleaseCode(2), 0);
  EXPECT_THAT(testing::SamplesOf(context_.stats.Take(), "muster_barrier_wait_seconds"), SizeIs(1));
}

TEST_F(RendezvousTest, AbortsBarrierWhenARankExitsWithoutArriving) {
  Arrive("a", 0);
  job_->generation->RecordOf(job_->generation->ranks[1]).set_exited(true);
  job_->generation->Reach(job_->generation->ranks[1], v1::EXITED);
  rendezvous_.AbortHopelessBarriers(*job_);
  EXPECT_EQ(ReleaseCode(1), static_cast<int>(absl::StatusCode::kAborted));
}

TEST_F(RendezvousTest, StopAbortsBarriersAndRejectsNewOnes) {
  Arrive("a", 0);
  jobs_.states.Transition(*job_, v1::STOPPING, "", "");
  rendezvous_.Stop(*job_, "cancelled");
  EXPECT_EQ(ReleaseCode(1), static_cast<int>(absl::StatusCode::kAborted));
  EXPECT_FALSE(context_.timers.Get({TimerKey::Kind::kRendezvous, "job"}).has_value());
  context_.effects = Effects();
  Arrive("b", 1);
  EXPECT_EQ(ReleaseCode(2), static_cast<int>(absl::StatusCode::kAborted));
  ASSERT_THAT(rendezvous_.Waits(*job_, context_.now), SizeIs(1));
  EXPECT_EQ(rendezvous_.Waits(*job_, context_.now)[0].what(), "stop");
}

TEST_F(RendezvousTest, SendsNoticesOfWaitsAfterTwoSeconds) {
  const TimerKey timer{TimerKey::Kind::kWait, "job"};
  ASSERT_EQ(context_.timers.Get(timer), context_.now.steady + absl::Seconds(2));
  Advance(context_, absl::Seconds(2));
  rendezvous_.OnWaitTimer(*job_);
  ASSERT_THAT(Sent(context_, 1, Message::kWaitNotice), SizeIs(1));
  EXPECT_THAT(Sent(context_, 1, Message::kWaitNotice)[0].wait_notice().wait().missing(), SizeIs(2));
  EXPECT_THAT(context_.effects.logs, SizeIs(1));
  EXPECT_EQ(context_.timers.Get(timer), context_.now.steady + absl::Seconds(5));
}

}  // namespace
}  // namespace muster::core
