#include "coordinator/core/scheduler/rank_map.h"

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

TEST(NaturalOrder, ComparesNumbersByValue) {
  std::vector<std::string> names = {"node-10",  "node-2",  "node-1", "a",
                                    "node-2-b", "node-02", "node"};
  std::sort(names.begin(), names.end(), NaturalLess);
  EXPECT_THAT(names,
              ElementsAre("a", "node", "node-1", "node-02", "node-2", "node-2-b", "node-10"));
}

TEST(NaturalOrder, IsStrictWeakOrdering) {
  const std::vector<std::string> names = {
      "", "0", "00", "1", "01", "a1", "a01", "a1b", "1a", "b", "18446744073709551616", "2"};
  for (const std::string& a : names) {
    EXPECT_FALSE(NaturalLess(a, a));
    for (const std::string& b : names) {
      if (a != b) EXPECT_NE(NaturalLess(a, b), NaturalLess(b, a)) << a << " " << b;
      for (const std::string& c : names) {
        if (NaturalLess(a, b) && NaturalLess(b, c)) {
          EXPECT_TRUE(NaturalLess(a, c)) << a << " " << b << " " << c;
        }
      }
    }
  }
}

TEST(Shapes, AreDerivedFromSpec) {
  v1::Resources resources;
  EXPECT_EQ(ShapeOf(resources).min_nodes, 1u);
  EXPECT_EQ(ShapeOf(resources).devices_per_rank, 1u);
  resources.mutable_nodes()->set_min(2);
  resources.set_devices_per_rank("4");
  EXPECT_EQ(ShapeOf(resources).max_nodes, 2u);
  EXPECT_EQ(ShapeOf(resources).devices_per_rank, 4u);
  resources.set_devices_per_rank("all");
  EXPECT_EQ(ShapeOf(resources).devices_per_rank, std::nullopt);
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

TEST(RankMap, IsIndependentOfArrivalOrderAndMovesFewRanks) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<FreeNode> nodes;
    const int count = 2 + static_cast<int>(random() % 12);
    for (int i = 0; i < count; ++i) {
      nodes.push_back(
          MakeNode(absl::StrCat("node-", i), random() % 4, absl::StrCat("rack-", random() % 3)));
    }
    const Shape shape{1, 1 + static_cast<uint32_t>(random() % 8),
                      1 + static_cast<uint32_t>(random() % 2), 1};
    const std::vector<v1::NodePlacement> placements = MapRanks(shape, nodes);
    std::shuffle(nodes.begin(), nodes.end(), random);
    EXPECT_EQ(Text(MapRanks(shape, nodes)), Text(placements));

    if (placements.empty()) continue;
    // When a node is missing, the nodes before it keep their ranks.
    const size_t lost = random() % placements.size();
    nodes.erase(std::find_if(nodes.begin(), nodes.end(), [&](const FreeNode& node) {
      return node.name == placements[lost].node();
    }));
    const std::vector<v1::NodePlacement> without = MapRanks(shape, nodes);
    for (size_t i = 0; i < lost && !without.empty(); ++i) {
      EXPECT_EQ(without[i].ShortDebugString(), placements[i].ShortDebugString());
    }
  }
}

}  // namespace
}  // namespace muster::core
