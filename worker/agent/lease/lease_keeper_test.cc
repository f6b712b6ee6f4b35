#include "worker/agent/lease/lease_keeper.h"

#include <map>

#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LeaseKeeperTest : public ::testing::Test {
 protected:
  LeaseKeeper::Outside MakeOutside() {
    LeaseKeeper::Outside outside;
    outside.held = [this] { return held_; };
    outside.set_deadline = [this](const LeaseKeeper::Lease& lease, SteadyTime deadline) {
      deadlines_[lease.job_id] = deadline - kStart;
    };
    outside.end = [this](const LeaseKeeper::Lease& lease) { ended_.push_back(lease.job_id); };
    outside.ask = [this](const v1::LeaseQuestion& question, absl::Duration,
                         std::function<void(const v1::PeerAnswer&)> answered,
                         std::function<void()> done) {
      questions_.push_back(question);
      answered_ = std::move(answered);
      done_ = std::move(done);
    };
    outside.probe = [this](absl::Duration, std::function<void()> done) {
      refused_ = std::move(done);
    };
    outside.fence_set = [this]() -> const v1::FenceSet& { return fence_set_; };
    return outside;
  }

  void TickAt(absl::Duration time) { keeper_.Tick(kStart + time); }
  void AnswerTimeLeft(const std::string& job, absl::Duration left) {
    v1::PeerAnswer answer;
    v1::LeasedGeneration& leased = *answer.mutable_coordinator()->add_generations();
    leased.set_job_id(job);
    leased.set_generation(1);
    *leased.mutable_time_left() = ToProto(left);
    answered_(answer);
    done_();
  }
  void AnswerLost(const std::string& job) {
    v1::PeerAnswer answer;
    v1::LeasedGeneration& leased = *answer.mutable_coordinator()->add_generations();
    leased.set_job_id(job);
    leased.set_generation(1);
    leased.set_lost(true);
    answered_(answer);
    done_();
  }
  void AnswerRefused(absl::Duration age) {
    v1::PeerAnswer answer;
    *answer.mutable_refused() = ToProto(age);
    answered_(answer);
  }
  void Vouch(const std::string& node) {
    v1::PeerAnswer answer;
    answer.set_node_name(node);
    answer.add_vouched()->set_job_id("job");
    answer.mutable_vouched(0)->set_generation(1);
    answered_(answer);
  }
  void UseFenceSet(const std::vector<std::string>& nodes) {
    fence_set_.set_id(1);
    fence_set_.mutable_nodes()->Assign(nodes.begin(), nodes.end());
  }

  const SteadyTime kStart = SteadyTime(absl::Hours(7));
  std::vector<LeaseKeeper::Lease> held_ = {{"job", 1, absl::Seconds(30)}};
  std::map<std::string, absl::Duration> deadlines_;
  std::vector<std::string> ended_;
  std::vector<v1::LeaseQuestion> questions_;
  std::function<void(const v1::PeerAnswer&)> answered_;
  std::function<void()> done_;
  std::function<void()> refused_;
  v1::FenceSet fence_set_;
  LeaseKeeper keeper_{"a", MakeOutside(), kStart};
};

TEST_F(LeaseKeeperTest, AcknowledgementExtendsFromWhenItsHeartbeatWasSent) {
  held_.push_back({"long", 1, absl::Minutes(10)});
  keeper_.OnAcknowledged(kStart + absl::Seconds(5));
  EXPECT_EQ(deadlines_["job"], absl::Seconds(5 + 27));
  EXPECT_EQ(deadlines_["long"], absl::Seconds(5 + 590)) << "the margin is at most 10s";
  keeper_.OnAcknowledged(kStart + absl::Seconds(4));
  EXPECT_EQ(deadlines_["job"], absl::Seconds(5 + 27)) << "an older one changes nothing";
  EXPECT_EQ(keeper_.DeadlineFor(absl::Seconds(30)) - kStart, absl::Seconds(5 + 27));
}

TEST_F(LeaseKeeperTest, AsksAfterThirdOfLease) {
  keeper_.OnAcknowledged(kStart + absl::Seconds(10));
  TickAt(absl::Seconds(19.9));
  EXPECT_THAT(questions_, IsEmpty());
  TickAt(absl::Seconds(20));
  ASSERT_EQ(questions_.size(), 1u);
  EXPECT_EQ(questions_[0].generations(0).job_id(), "job");
  EXPECT_EQ(questions_[0].generations(0).generation(), 1u);
  TickAt(absl::Seconds(25));
  EXPECT_EQ(questions_.size(), 1u) << "one question at a time";
}

TEST_F(LeaseKeeperTest, AsksAgainUntilAcknowledged) {
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  AnswerTimeLeft("job", absl::Seconds(20));
  TickAt(absl::Seconds(11));
  EXPECT_EQ(questions_.size(), 1u) << "not at each tick";
  TickAt(absl::Seconds(12));
  EXPECT_EQ(questions_.size(), 2u);
  done_();
  keeper_.OnAcknowledged(kStart + absl::Seconds(13));
  TickAt(absl::Seconds(15));
  EXPECT_EQ(questions_.size(), 2u);
}

TEST_F(LeaseKeeperTest, AsksOnlyAboutOverdueLeases) {
  held_.push_back({"long", 1, absl::Minutes(10)});
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  ASSERT_EQ(questions_.size(), 1u);
  EXPECT_EQ(questions_[0].generations_size(), 1);
  done_();
  TickAt(absl::Seconds(200));
  ASSERT_EQ(questions_.size(), 2u);
  EXPECT_EQ(questions_[1].generations_size(), 2);
}

// Half a cluster behind a failed switch has no answer either.
TEST_F(LeaseKeeperTest, PeersWithoutEvidenceExtendNothing) {
  UseFenceSet({"a", "b"});
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  answered_(v1::PeerAnswer());
  done_();
  EXPECT_EQ(deadlines_["job"], absl::Seconds(27));
  EXPECT_THAT(ended_, IsEmpty());
}

TEST_F(LeaseKeeperTest, RefusalExtendsFromWhenTheConnectionWasBegun) {
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  refused_();
  EXPECT_EQ(deadlines_["job"], absl::Seconds(10 + 27));
  done_();
  TickAt(absl::Seconds(19));
  EXPECT_EQ(questions_.size(), 1u) << "the evidence is fresh";
  TickAt(absl::Seconds(20));
  EXPECT_EQ(questions_.size(), 2u);
}

TEST_F(LeaseKeeperTest, RefusalOfPeerCountsWithItsAge) {
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  AnswerRefused(absl::Seconds(3));
  EXPECT_EQ(deadlines_["job"], absl::Seconds(10 - 3 + 27));
}

TEST_F(LeaseKeeperTest, VouchersOfMoreThanHalfExtendFromTheQuestion) {
  UseFenceSet({"a", "b", "c", "d"});
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  EXPECT_EQ(questions_[0].generations(0).lease().seconds(), 30);
  Vouch("b");
  Vouch("b");
  Vouch("x");
  EXPECT_EQ(deadlines_["job"], absl::Seconds(27)) << "half of the set, and a node outside of it";
  Vouch("d");
  EXPECT_EQ(deadlines_["job"], absl::Seconds(10 + 27));
}

TEST_F(LeaseKeeperTest, VouchersForAnEarlierSetDoNotCount) {
  UseFenceSet({"a", "b", "c"});
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  EXPECT_EQ(questions_[0].fence_set(), 1u);
  fence_set_.set_id(2);
  Vouch("b");
  Vouch("c");
  EXPECT_EQ(deadlines_["job"], absl::Seconds(27));
}

TEST_F(LeaseKeeperTest, VouchersOfDifferentQuestionsDoNotAddUp) {
  UseFenceSet({"a", "b", "c", "d"});
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  Vouch("b");
  done_();
  TickAt(absl::Seconds(12));
  Vouch("c");
  EXPECT_EQ(deadlines_["job"], absl::Seconds(27));
}

TEST_F(LeaseKeeperTest, OnlyNodeOfFenceSetVouchesForItself) {
  UseFenceSet({"a"});
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  EXPECT_EQ(deadlines_["job"], absl::Seconds(10 + 27));
}

TEST_F(LeaseKeeperTest, RanksThatContinueHaveNoDeadlineButEndWhenLost) {
  held_[0].has_deadline = false;
  UseFenceSet({"a"});
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  ASSERT_EQ(questions_.size(), 1u);
  EXPECT_FALSE(questions_[0].generations(0).has_lease()) << "nobody needs to vouch for them";
  refused_();
  EXPECT_THAT(deadlines_, IsEmpty());
  done_();
  TickAt(absl::Seconds(25));
  AnswerLost("job");
  EXPECT_THAT(ended_, ElementsAre("job"));
}

TEST_F(LeaseKeeperTest, TimeLeftIsTheDeadline) {
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  AnswerTimeLeft("job", absl::Seconds(20));
  EXPECT_EQ(deadlines_["job"], absl::Seconds(27)) << "not extended";
}

// The coordinator was dead, and has granted a lease when it returned.
TEST_F(LeaseKeeperTest, TimeLeftExtendsAfterRestartOfCoordinator) {
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(20));
  AnswerTimeLeft("job", absl::Seconds(28));
  EXPECT_EQ(deadlines_["job"], absl::Seconds(20 + 25));
}

TEST_F(LeaseKeeperTest, LostRanksAreEndedAtOnce) {
  held_.push_back({"other", 1, absl::Seconds(30)});
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  AnswerLost("job");
  EXPECT_THAT(ended_, ElementsAre("job"));
  // The answer says nothing about the other job: its coordinator does not know it.
  EXPECT_EQ(deadlines_["other"], absl::Seconds(27));
}

TEST_F(LeaseKeeperTest, AnswerThatAnAcknowledgementOvertookIsIgnored) {
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  keeper_.OnAcknowledged(kStart + absl::Seconds(11));
  AnswerLost("job");
  EXPECT_THAT(ended_, IsEmpty());
  EXPECT_EQ(deadlines_["job"], absl::Seconds(11 + 27));
}

// A restarted worker does not know when its predecessor was acknowledged.
TEST_F(LeaseKeeperTest, RestartedWorkerAsksSoon) {
  TickAt(absl::Seconds(1));
  EXPECT_THAT(questions_, IsEmpty());
  EXPECT_THAT(deadlines_, IsEmpty());
  TickAt(absl::Seconds(2));
  EXPECT_EQ(questions_.size(), 1u);
}

TEST_F(LeaseKeeperTest, NothingIsAskedWithoutRanks) {
  held_.clear();
  TickAt(absl::Seconds(100));
  EXPECT_THAT(questions_, IsEmpty());
}

}  // namespace
}  // namespace muster::agent
