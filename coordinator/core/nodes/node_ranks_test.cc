#include "coordinator/core/nodes/node_ranks.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class NodeRanksTest : public ::testing::Test {
 protected:
  const JobId job_{"job"};
  const RankRef first_{job_, Generation(1), 0};
  const RankRef second_{job_, Generation(1), 1};
  NodeRanks ranks_;
};

TEST_F(NodeRanksTest, ExclusiveJobHoldsNodeUntilLastRankIsVacated) {
  ranks_.Occupy(first_, {0}, /*exclusive=*/true);
  ranks_.Occupy(second_, {1}, /*exclusive=*/true);
  ranks_.Vacate(first_);
  EXPECT_EQ(ranks_.exclusive_job(), job_);
  ranks_.Vacate(second_);
  EXPECT_EQ(ranks_.exclusive_job(), std::nullopt);
}

TEST_F(NodeRanksTest, LeftoversKeepSlotsUntilCleared) {
  ranks_.Occupy(first_, {0, 2});
  ranks_.Occupy(second_, {1});
  ranks_.SetLeftovers(job_, Generation(1), {0});
  EXPECT_THAT(ranks_.SlotsOf(first_), ElementsAre(0, 2));
  EXPECT_THAT(ranks_.PlacedGenerations(), ElementsAre(Pair(job_, Generation(1))));
  EXPECT_TRUE(ranks_.MayHaveLeftoverOn({2}));
  EXPECT_FALSE(ranks_.MayHaveLeftoverOn({1}));
  ranks_.SetLeftovers(job_, Generation(1), {0, 1});
  EXPECT_THAT(ranks_.PlacedGenerations(), IsEmpty());
  ranks_.ClearLeftovers();
  EXPECT_FALSE(ranks_.HasLeftovers());
  EXPECT_TRUE(ranks_.by_slot().empty());
}

TEST_F(NodeRanksTest, UnkillableRankIsLeftoverUntilVacated) {
  ranks_.Occupy(first_, {0});
  ranks_.SetUnkillable(first_, 7);
  ranks_.SetUnkillable(first_, 4411);
  EXPECT_TRUE(ranks_.HasLeftover(first_));
  ASSERT_NE(ranks_.FindUnkillable(0), nullptr);
  EXPECT_EQ(Describe(*ranks_.FindUnkillable(0)), "unkillable rank 0 of job, pid 4411");
  EXPECT_EQ(ranks_.FindUnkillable(1), nullptr);
  ranks_.Vacate(first_);
  EXPECT_FALSE(ranks_.HasUnkillable());
}

}  // namespace
}  // namespace muster::core
