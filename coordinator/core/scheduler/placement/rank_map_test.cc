#include "coordinator/core/scheduler/placement/rank_map.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;

FreeNode MakeNode(std::string name, uint32_t slots, std::string rack = "") {
  FreeNode node;
  node.name = std::move(name);
  node.rack = std::move(rack);
  node.slot_count = slots;
  for (uint32_t i = 0; i < slots; ++i) node.free_slots.push_back(i);
  return node;
}

std::vector<std::string> Names(const std::vector<v1::NodePlacement>& placements) {
  std::vector<std::string> names;
  for (const v1::NodePlacement& placement : placements) names.push_back(placement.node());
  return names;
}

std::string Text(const std::vector<v1::NodePlacement>& placements) {
  std::string text;
  for (const v1::NodePlacement& placement : placements) text += placement.ShortDebugString() + "\n";
  return text;
}

TEST(RankMap, NumbersRanksByRackThenName) {
  const std::vector<v1::NodePlacement> placements = MapRanks(
      {3, 3, 2, 1}, {MakeNode("n-10", 2, "r1"), MakeNode("n-2", 2, "r1"), MakeNode("z", 2, "r0")});
  EXPECT_THAT(Names(placements), ElementsAre("z", "n-2", "n-10"));
  uint32_t rank = 0;
  for (const v1::NodePlacement& placement : placements) {
    ASSERT_EQ(placement.ranks_size(), 2);
    for (int local = 0; local < 2; ++local) {
      EXPECT_EQ(placement.ranks(local).rank(), rank++);
      EXPECT_EQ(placement.ranks(local).local_rank(), static_cast<uint32_t>(local));
      EXPECT_THAT(placement.ranks(local).slots(), ElementsAre(local));
    }
  }
}

TEST(RankMap, IsAllOrNothing) {
  EXPECT_TRUE(MapRanks({2, 2, 1, 1}, {MakeNode("a", 1)}).empty());
  EXPECT_TRUE(MapRanks({1, 1, 3, 1}, {MakeNode("a", 2), MakeNode("b", 1)}).empty());
  EXPECT_TRUE(MapRanks({1, 1, 1, 1}, {}).empty());
}

TEST(RankMap, UsesMostNodesThatFit) {
  const std::vector<FreeNode> nodes = {MakeNode("a", 1), MakeNode("b", 0), MakeNode("c", 1),
                                       MakeNode("d", 1)};
  EXPECT_THAT(Names(MapRanks({1, 2, 1, 1}, nodes)), ElementsAre("a", "c"));
  EXPECT_THAT(Names(MapRanks({1, 8, 1, 1}, nodes)), ElementsAre("a", "c", "d"));
}

TEST(RankMap, AssignsSlotsToEachRank) {
  FreeNode node = MakeNode("a", 6);
  node.free_slots = {1, 2, 4, 5};
  const std::vector<v1::NodePlacement> placements = MapRanks({1, 1, 2, 2}, {node});
  ASSERT_EQ(placements.size(), 1u);
  EXPECT_THAT(placements[0].ranks(0).slots(), ElementsAre(1, 2));
  EXPECT_THAT(placements[0].ranks(1).slots(), ElementsAre(4, 5));
}

TEST(RankMap, AllDevicesMeansWholeNode) {
  EXPECT_EQ(MapRanks({1, 1, 1, std::nullopt}, {MakeNode("a", 4)})[0].ranks(0).slots_size(), 4);
  EXPECT_EQ(MapRanks({1, 1, 2, std::nullopt}, {MakeNode("a", 4)})[0].ranks(1).slots_size(), 2);
  FreeNode partly = MakeNode("a", 4);
  partly.free_slots.pop_back();
  EXPECT_TRUE(MapRanks({1, 1, 1, std::nullopt}, {partly}).empty());
}

TEST(RankMap, UsesOneRackIfItSuffices) {
  const std::vector<FreeNode> nodes = {
      MakeNode("a-1", 1, "a"), MakeNode("a-2", 1, "a"), MakeNode("b-1", 1, "b"),
      MakeNode("b-2", 1, "b"), MakeNode("b-3", 1, "b"), MakeNode("c-1", 1, "c"),
      MakeNode("c-2", 1, "c"), MakeNode("c-3", 1, "c"), MakeNode("c-4", 1, "c")};
  // The smallest rack that holds the job, so that larger ones are left to larger jobs.
  EXPECT_THAT(Names(MapRanks({2, 2, 1, 1}, nodes)), ElementsAre("a-1", "a-2"));
  EXPECT_THAT(Names(MapRanks({3, 3, 1, 1}, nodes)), ElementsAre("b-1", "b-2", "b-3"));
  // No rack holds five nodes: the largest one and part of the next.
  EXPECT_THAT(Names(MapRanks({5, 5, 1, 1}, nodes)), ElementsAre("b-1", "c-1", "c-2", "c-3", "c-4"));
}

TEST(RankMap, LeavesLargeNodesToLargeJobs) {
  const std::vector<FreeNode> nodes = {MakeNode("a", 8), MakeNode("b", 2), MakeNode("c", 4)};
  EXPECT_THAT(Names(MapRanks({1, 1, 2, 1}, nodes)), ElementsAre("b"));
  EXPECT_THAT(Names(MapRanks({2, 2, 2, 1}, nodes)), ElementsAre("b", "c"));
}

TEST(RankMap, UsesPreferredNodesFirst) {
  std::vector<FreeNode> nodes = {MakeNode("a", 1, "r"), MakeNode("b", 1, "r"),
                                 MakeNode("c", 1, "s")};
  nodes[1].preferred = true;
  EXPECT_THAT(Names(MapRanks({1, 1, 1, 1}, nodes)), ElementsAre("b"));
  nodes[1].preferred = false;
  nodes[2].preferred = true;
  EXPECT_THAT(Names(MapRanks({1, 1, 1, 1}, nodes)), ElementsAre("c"));
}

TEST(RankMap, UsesNodesOfLastResortLast) {
  std::vector<FreeNode> nodes = {MakeNode("a", 1), MakeNode("b", 1)};
  nodes[0].last_resort = true;
  EXPECT_THAT(Names(MapRanks({1, 1, 1, 1}, nodes)), ElementsAre("b"));
  EXPECT_THAT(Names(MapRanks({2, 2, 1, 1}, nodes)), ElementsAre("b", "a"));
}

TEST(RankMap, SpreadsTotalNumberOfRanksOverFewNodes) {
  Shape shape;
  shape.total_ranks = 10;
  const std::vector<FreeNode> nodes = {MakeNode("a", 2), MakeNode("b", 8), MakeNode("c", 4),
                                       MakeNode("d", 3)};
  const std::vector<v1::NodePlacement> placements = MapRanks(shape, nodes);
  ASSERT_THAT(Names(placements), ElementsAre("a", "b"));
  EXPECT_EQ(placements[0].ranks_size(), 2);
  EXPECT_EQ(placements[1].ranks_size(), 8);
  EXPECT_EQ(placements[1].ranks(0).rank(), 2u);
  EXPECT_EQ(placements[1].ranks(0).local_rank(), 0u);
  shape.total_ranks = 18;
  EXPECT_TRUE(MapRanks(shape, nodes).empty());
}

TEST(RankMap, IsIndependentOfArrivalOrder) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<FreeNode> nodes;
    const int count = 2 + static_cast<int>(random() % 12);
    for (int i = 0; i < count; ++i) {
      nodes.push_back(
          MakeNode(absl::StrCat("node-", i), random() % 4, absl::StrCat("rack-", random() % 3)));
    }
    Shape shape{1, 1 + static_cast<uint32_t>(random() % 8), 1 + static_cast<uint32_t>(random() % 2),
                1};
    if (random() % 3 == 0) shape.total_ranks = 1 + random() % 12;
    const std::string placements = Text(MapRanks(shape, nodes));
    std::shuffle(nodes.begin(), nodes.end(), random);
    EXPECT_EQ(Text(MapRanks(shape, nodes)), placements);
  }
}

// In a cluster of equal nodes without racks, the nodes before a missing one keep their ranks.
TEST(RankMap, MovesFewRanksWhenNodeIsMissing) {
  for (size_t lost = 0; lost < 4; ++lost) {
    std::vector<FreeNode> nodes;
    for (int i = 0; i < 6; ++i) nodes.push_back(MakeNode(absl::StrCat("node-", i), 2));
    const Shape shape{4, 4, 2, 1};
    const std::vector<v1::NodePlacement> placements = MapRanks(shape, nodes);
    nodes.erase(nodes.begin() + lost);
    const std::vector<v1::NodePlacement> without = MapRanks(shape, nodes);
    for (size_t i = 0; i < lost; ++i) {
      EXPECT_EQ(without[i].ShortDebugString(), placements[i].ShortDebugString());
    }
  }
}

}  // namespace
}  // namespace muster::core
