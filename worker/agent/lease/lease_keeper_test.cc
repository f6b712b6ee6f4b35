#include "worker/agent/lease/lease_keeper.h"

#include <map>

#include "common/proto_time.h"
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
                         std::function<void(std::optional<v1::LeaseAnswer>)> done) {
      questions_.push_back(question);
      done_ = std::move(done);
    };
    return outside;
  }

  void TickAt(absl::Duration time) { keeper_.Tick(kStart + time); }
  void AnswerTimeLeft(const std::string& job, absl::Duration left) {
    v1::LeaseAnswer answer;
    answer.add_generations()->set_job_id(job);
    answer.mutable_generations(0)->set_generation(1);
    *answer.mutable_generations(0)->mutable_time_left() = ToProto(left);
    done_(answer);
  }
  void AnswerLost(const std::string& job) {
    v1::LeaseAnswer answer;
    answer.add_generations()->set_job_id(job);
    answer.mutable_generations(0)->set_generation(1);
    answer.mutable_generations(0)->set_lost(true);
    done_(answer);
  }

  const SteadyTime kStart = SteadyTime(absl::Hours(7));
  std::vector<LeaseKeeper::Lease> held_ = {{"job", 1, absl::Seconds(30)}};
  std::map<std::string, absl::Duration> deadlines_;
  std::vector<std::string> ended_;
  std::vector<v1::LeaseQuestion> questions_;
  std::function<void(std::optional<v1::LeaseAnswer>)> done_;
  LeaseKeeper keeper_{MakeOutside(), kStart};
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
  done_(std::nullopt);
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
  done_(std::nullopt);
  TickAt(absl::Seconds(200));
  ASSERT_EQ(questions_.size(), 2u);
  EXPECT_EQ(questions_[1].generations_size(), 2);
}

TEST_F(LeaseKeeperTest, WithoutAnswerCoordinatorCountsAsDead) {
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  EXPECT_EQ(deadlines_["job"], absl::Seconds(27));
  done_(std::nullopt);
  EXPECT_EQ(deadlines_["job"], absl::Seconds(10 + 27));
  EXPECT_THAT(ended_, IsEmpty());
}

TEST_F(LeaseKeeperTest, TimeLeftIsTheDeadline) {
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  AnswerTimeLeft("job", absl::Seconds(20.5));
  EXPECT_EQ(deadlines_["job"], absl::Seconds(10 + 17.5)) << "not extended";
}

// The coordinator was dead, and has returned: its lease began later than this worker's.
TEST_F(LeaseKeeperTest, TimeLeftShortensDeadlineThatWasExtended) {
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  done_(std::nullopt);
  TickAt(absl::Seconds(100));
  done_(std::nullopt);
  EXPECT_EQ(deadlines_["job"], absl::Seconds(127));
  TickAt(absl::Seconds(110));
  AnswerTimeLeft("job", absl::Seconds(8));
  EXPECT_EQ(deadlines_["job"], absl::Seconds(110 + 5));
}

TEST_F(LeaseKeeperTest, LostRanksAreEndedAtOnce) {
  held_.push_back({"other", 1, absl::Seconds(30)});
  keeper_.OnAcknowledged(kStart);
  TickAt(absl::Seconds(10));
  AnswerLost("job");
  EXPECT_THAT(ended_, ElementsAre("job"));
  // The answer says nothing about the other job: its coordinator does not know it.
  EXPECT_EQ(deadlines_["other"], absl::Seconds(10 + 27));
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
