#include "coordinator/core/jobs/generation.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;

// Ranks 0 and 1 are on node a, rank 2 is on node b.
GenerationState MakeGeneration() {
  v1::GenerationRecord record;
  record.set_generation(1);
  record.set_world_size(3);
  v1::NodePlacement& a = *record.add_nodes();
  a.set_node("a");
  a.add_ranks()->set_rank(0);
  a.add_ranks()->set_rank(1);
  v1::NodePlacement& b = *record.add_nodes();
  b.set_node("b");
  b.add_ranks()->set_rank(2);
  b.mutable_ranks(0)->add_slots(5);
  return GenerationState(record, SteadyTime());
}

void Exit(GenerationState& generation, uint32_t rank, int code) {
  v1::RankRecord& record = generation.RecordOf(generation.ranks[rank]);
  record.mutable_exit()->set_exit_code(code);
  record.set_exited(true);
  generation.Reach(generation.ranks[rank], v1::EXITED);
}

TEST(GenerationTest, FindsRanksAndNodes) {
  const GenerationState generation = MakeGeneration();
  EXPECT_EQ(generation.NodeRank(NodeName("b")), 1u);
  EXPECT_EQ(generation.NodeRank(NodeName("c")), std::nullopt);
  EXPECT_EQ(generation.RanksOf(0), std::make_pair(0u, 2u));
  EXPECT_THAT(SlotsOf(generation.record, NodeName("b"), 2), ElementsAre(5));
  EXPECT_THAT(SlotsOf(generation.record, NodeName("a"), 2), ElementsAre());
}

TEST(GenerationTest, CleanExitCountsAsEveryPhase) {
  GenerationState generation = MakeGeneration();
  generation.Reach(generation.ranks[0], v1::CONNECTED);
  generation.Reach(generation.ranks[1], v1::JOINED);
  EXPECT_THAT(generation.RanksBefore(v1::CONNECTED), ElementsAre(1, 2));
  Exit(generation, 2, 0);
  EXPECT_TRUE(generation.EveryRankReached(v1::JOINED));
  EXPECT_THAT(generation.RanksBefore(v1::CONNECTED), ElementsAre(1));
  EXPECT_FALSE(generation.EveryRankExitedCleanly());
}

TEST(GenerationTest, FailedExitReachesNoPhase) {
  GenerationState generation = MakeGeneration();
  Exit(generation, 0, 3);
  EXPECT_EQ(generation.reached[v1::STARTED], 0u);
  EXPECT_THAT(generation.RanksBefore(v1::STARTED), ElementsAre(0, 1, 2));
  EXPECT_EQ(generation.clean_exits, 0u);
}

TEST(GenerationTest, NothingLeftOnceAllRanksExitedOrLost) {
  GenerationState generation = MakeGeneration();
  Exit(generation, 0, 0);
  generation.MarkLost(generation.ranks[1]);
  generation.MarkLost(generation.ranks[1]);
  EXPECT_FALSE(generation.HasLiveRanks(0));
  EXPECT_TRUE(generation.HasLiveRanks(1));
  EXPECT_FALSE(generation.NothingLeft());
  Exit(generation, 2, 0);
  EXPECT_TRUE(generation.NothingLeft());
}

TEST(GenerationTest, CountsRanksThatPrepareData) {
  GenerationState generation = MakeGeneration();
  v1::Progress loading;
  loading.set_phase("loading-data");
  for (RankState& rank : generation.ranks) {
    generation.SetProgress(rank, loading);
    generation.SetProgress(rank, loading);
  }
  EXPECT_EQ(generation.preparing_data, 3u);
  generation.SetProgress(generation.ranks[0], v1::Progress());
  EXPECT_EQ(generation.preparing_data, 2u);
  generation.Reach(generation.ranks[1], v1::JOINED);
  generation.SetProgress(generation.ranks[1], loading);  // late
  EXPECT_EQ(generation.preparing_data, 1u);
  generation.MarkLost(generation.ranks[2]);
  EXPECT_EQ(generation.preparing_data, 0u);
}

TEST(GenerationTest, RestoresStateFromRecord) {
  GenerationState before = MakeGeneration();
  Exit(before, 0, 1);
  before.MarkLost(before.ranks[2]);
  before.RecordOf(before.ranks[2]).set_lost(true);
  const GenerationState after(before.record, SteadyTime());
  EXPECT_EQ(after.gone, 2u);
  EXPECT_EQ(after.ranks[0].phase, v1::EXITED);
  EXPECT_FALSE(after.ranks[0].exited_cleanly);
  EXPECT_TRUE(after.ranks[2].lost);
}

}  // namespace
}  // namespace muster::core
