#include "common/pipeline/balance.h"

#include <algorithm>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace muster::pipeline {
namespace {

double Slowest(const std::vector<double>& costs, const std::vector<size_t>& cuts) {
  const std::vector<double> stages = StageCosts(costs, cuts);
  return *std::max_element(stages.begin(), stages.end());
}

// The best cuts, the earliest ones on ties, by exhaustive search.
std::vector<size_t> BruteForceCuts(const std::vector<double>& costs, uint32_t stages) {
  std::vector<bool> is_cut(costs.size(), false);
  // Permutations end with the earliest cuts, so that `<=` prefers these on ties.
  std::fill(is_cut.end() - (stages - 1), is_cut.end(), true);
  std::vector<size_t> best;
  double slowest = std::numeric_limits<double>::infinity();
  do {
    std::vector<size_t> cuts;
    for (size_t i = 0; i < is_cut.size(); ++i) {
      if (is_cut[i]) cuts.push_back(i);
    }
    if (!cuts.empty() && cuts[0] == 0) continue;  // the first stage would be empty
    if (Slowest(costs, cuts) <= slowest) {
      slowest = Slowest(costs, cuts);
      best = cuts;
    }
  } while (std::next_permutation(is_cut.begin(), is_cut.end()));
  return best;
}

TEST(Balance, MatchesExhaustiveSearch) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    std::vector<double> costs(1 + random() % 11);
    const uint32_t stages = 1 + random() % std::min<size_t>(costs.size(), 6);
    // Small integers including zeros, so that there are ties and sums are exact.
    for (double& cost : costs) cost = random() % 7;
    const absl::StatusOr<std::vector<size_t>> cuts = BalancedCuts(costs, stages);
    ASSERT_TRUE(cuts.ok()) << cuts.status();
    EXPECT_EQ(*cuts, BruteForceCuts(costs, stages)) << "seed " << seed;
  }
}

TEST(Balance, IsOptimalForFractionalCosts) {
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    std::vector<double> costs(5 + random() % 7);
    for (double& cost : costs) cost = std::uniform_real_distribution<double>(1e-6, 1e-3)(random);
    const uint32_t stages = 2 + random() % 4;
    const absl::StatusOr<std::vector<size_t>> cuts = BalancedCuts(costs, stages);
    ASSERT_TRUE(cuts.ok()) << cuts.status();
    EXPECT_EQ(Slowest(costs, *cuts), Slowest(costs, BruteForceCuts(costs, stages)))
        << "seed " << seed;
  }
}

TEST(Balance, SplitsEqualSegmentsIntoEqualStages) {
  const absl::StatusOr<std::vector<size_t>> cuts = BalancedCuts(std::vector<double>(12, 2.0), 4);
  ASSERT_TRUE(cuts.ok());
  EXPECT_EQ(*cuts, (std::vector<size_t>{3, 6, 9}));
  EXPECT_EQ(StageCosts(std::vector<double>(12, 2.0), *cuts), (std::vector<double>(4, 6.0)));
}

TEST(Balance, GivesEveryStageAtLeastOneSegment) {
  const absl::StatusOr<std::vector<size_t>> cuts = BalancedCuts({0, 0, 100}, 3);
  ASSERT_TRUE(cuts.ok());
  EXPECT_EQ(*cuts, (std::vector<size_t>{1, 2}));
  const absl::StatusOr<std::vector<size_t>> one = BalancedCuts({1, 2}, 1);
  ASSERT_TRUE(one.ok());
  EXPECT_TRUE(one->empty());
}

TEST(Balance, RejectsInvalidArguments) {
  constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(BalancedCuts({1, 2}, 3).status().code(), kInvalid);
  EXPECT_EQ(BalancedCuts({1, 2}, 0).status().code(), kInvalid);
  EXPECT_EQ(BalancedCuts({1, -2}, 1).status().code(), kInvalid);
  EXPECT_EQ(BalancedCuts({1, std::numeric_limits<double>::infinity()}, 1).status().code(),
            kInvalid);
}

}  // namespace
}  // namespace muster::pipeline
