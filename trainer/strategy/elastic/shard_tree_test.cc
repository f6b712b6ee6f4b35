#include "trainer/strategy/elastic/shard_tree.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace muster::train {
namespace {

// The sum as ranks compute it, as an expression.
std::string Total(const ShardTree& tree) {
  std::vector<std::string> roots;
  for (uint32_t rank = 0; rank < tree.ranks(); ++rank) {
    std::vector<std::string> values;
    for (uint32_t shard = tree.of(rank).begin; shard < tree.of(rank).end; ++shard) {
      values.push_back(std::to_string(shard));
      EXPECT_LE(values.size(), tree.max_values());
      for (uint32_t i = tree.AdditionsAfter(rank, shard); i > 0; --i) {
        const std::string newest = values.back();
        values.pop_back();
        values.back() = "(" + values.back() + " " + newest + ")";
      }
    }
    EXPECT_EQ(values.size(), tree.roots(rank));
    EXPECT_LE(tree.of(rank).size(), tree.max_shards());
    roots.insert(roots.end(), values.begin(), values.end());
  }
  for (const ShardTree::Addition& addition : tree.total()) {
    roots[addition.into] = "(" + roots[addition.into] + " " + roots[addition.from] + ")";
  }
  return roots[0];
}

TEST(ShardTreeTest, DependsOnlyOnTheShards) {
  for (uint32_t shards = 1; shards <= 17; ++shards) {
    const std::string expected = Total(ShardTree(shards, 1));
    for (uint32_t ranks = 2; ranks <= shards; ++ranks) {
      EXPECT_EQ(Total(ShardTree(shards, ranks)), expected) << ranks << " ranks";
    }
  }
  EXPECT_EQ(Total(ShardTree(5, 2)), "(((0 1) (2 3)) 4)");
  EXPECT_EQ(Total(ShardTree(7, 3)), "(((0 1) (2 3)) ((4 5) 6))");
}

TEST(ShardTreeTest, PowersOfTwoExchangeOneRoot) {
  for (const uint32_t ranks : {1, 2, 4, 8, 16}) {
    EXPECT_EQ(ShardTree(16, ranks).max_roots(), 1u);
  }
  EXPECT_EQ(ShardTree(8, 3).max_roots(), 2u);
}

}  // namespace
}  // namespace muster::train
