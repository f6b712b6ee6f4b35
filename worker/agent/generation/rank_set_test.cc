#include "worker/agent/generation/rank_set.h"

#include <memory>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/event_loop.h"
#include "worker/agent/rank/progress_board.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Ranks = std::vector<uint32_t>;

Ranks RanksOf(const v1::GenerationReport& report) {
  Ranks ranks;
  for (const v1::RankReport& rank : report.ranks()) ranks.push_back(rank.rank());
  return ranks;
}

// Ranks 1 (on slot 0) and 3 (on slots 1 and 2).
class RankSetTest : public ::testing::Test {
 protected:
  RankSetTest() {
    context_.loop = &loop_;
    context_.progress = &board_;
    context_.send = [this](const v1::WorkerMessage& message) {
      EXPECT_EQ(message.report().job_id(), "job");
      EXPECT_EQ(message.report().generation(), 2u);
      sent_.push_back(RanksOf(message.report()));
    };
    context_.on_rank_exited = [](const std::string&, uint64_t, uint32_t) {};
    launch_.set_job_id("job");
    launch_.set_generation(2);
    v1::RankPlacement& one = *launch_.add_ranks();
    one.set_rank(1);
    one.add_slots(0);
    v1::RankPlacement& three = *launch_.add_ranks();
    three.set_rank(3);
    three.add_slots(1);
    three.add_slots(2);
    ranks_ = std::make_unique<RankSet>(context_, launch_, Rank::Events());
  }
  ~RankSetTest() override {
    loop_.RunAndWait([this] { ranks_.reset(); });
  }

  void Change(uint32_t rank) { ranks_->Find(rank)->record().Changed(); }

  EventLoop loop_{"test"};
  ProgressBoard board_;
  GenerationContext context_;
  v1::Launch launch_;
  std::vector<Ranks> sent_;  // used on the loop
  std::unique_ptr<RankSet> ranks_;
};

TEST_F(RankSetTest, SendsChangesOfOneIterationTogether) {
  loop_.RunAndWait([this] {
    Change(3);
    Change(1);
    Change(3);
    EXPECT_THAT(sent_, IsEmpty());
  });
  loop_.RunAndWait([this] { EXPECT_THAT(sent_, ElementsAre(Ranks{1, 3})); });
}

TEST_F(RankSetTest, ResendsChangesSinceHello) {
  loop_.RunAndWait([this] { Change(1); });
  loop_.RunAndWait([this] {
    EXPECT_THAT(RanksOf(ranks_->Inventory()), ElementsAre(1, 3));
    Change(3);
  });
  loop_.RunAndWait([this] {
    sent_.clear();
    ranks_->ResendChanged();
    EXPECT_THAT(sent_, ElementsAre(Ranks{3}));
    ranks_->Inventory();
    ranks_->ResendChanged();
    EXPECT_EQ(sent_.size(), 1u);
  });
}

TEST_F(RankSetTest, SendsNothingOnceDestroyed) {
  loop_.RunAndWait([this] {
    Change(1);
    ranks_.reset();
  });
  loop_.RunAndWait([this] { EXPECT_THAT(sent_, IsEmpty()); });
}

TEST_F(RankSetTest, DistinguishesLiveExitedAndUnkillableRanks) {
  loop_.RunAndWait([this] {
    EXPECT_EQ(ranks_->Find(2), nullptr);
    EXPECT_FALSE(ranks_->IsLive(2));
    EXPECT_THAT(ranks_->SlotsInUse(), IsEmpty());
    ranks_->Find(1)->record().SetExited(v1::ExitInfo());
    ranks_->Find(3)->record().Begin();
    EXPECT_FALSE(ranks_->IsLive(1));
    EXPECT_TRUE(ranks_->IsLive(3));
    EXPECT_THAT(ranks_->SlotsInUse(), ElementsAre(1, 2));
    EXPECT_FALSE(ranks_->settled());
    ranks_->Find(3)->record().SetUnkillable(/*survivor=*/0);
    EXPECT_TRUE(ranks_->settled());
    EXPECT_FALSE(ranks_->over());
  });
}

}  // namespace
}  // namespace muster::agent
