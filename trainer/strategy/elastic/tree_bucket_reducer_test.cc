#include "trainer/strategy/elastic/tree_bucket_reducer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/device.h"
#include "trainer/loop/testing.h"
#include "trainer/strategy/elastic/shard_tree.h"

namespace muster::train {
namespace {

constexpr size_t kElements = 1003;
constexpr size_t kBuffers = 5;

using Floats = std::vector<float>;

// Gradients of a shard, whose magnitudes differ so much that the order of additions matters.
Floats GradientsOf(uint32_t shard) {
  std::mt19937 random(shard + 1);
  Floats values(kElements);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(random() % 2001) - 1000, static_cast<int>(random() % 30));
  }
  return values;
}

kernels::LossResult LossOf(uint32_t shard) {
  return {.loss_sum = std::exp(3.0 * shard) / 7, .correct = shard + 1.0};
}

struct Sums {
  Floats gradients;
  Floats buffers;
  kernels::LossResult loss;
};

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs the shards of this rank for some steps; returns the result of the last one.
void RunRank(collectives::Communicator& communicator, const ShardTree& tree, Sums& sums) {
  const ShardRange own = tree.of(communicator.rank());
  sums.buffers.resize(kBuffers);
  TreeBucketReducerOptions options;
  options.elements = kElements;
  options.buffers = sums.buffers.data();
  options.buffer_elements = kBuffers;
  options.first_bucket_bytes = 64;
  options.bucket_bytes = 1024;
  auto created = TreeBucketReducer::Create(&communicator, &kernels::CpuDevice(), &tree, options);
  ASSERT_TRUE(created.ok()) << created.status();
  TreeBucketReducer& reducer = **created;
  for (int step = 0; step < 2; ++step) {
    std::vector<kernels::LossResult> losses;
    for (uint32_t shard = own.begin; shard < own.end; ++shard) {
      const bool last = shard + 1 == own.end;
      // Forward changes the running statistics.
      std::fill(sums.buffers.begin(), sums.buffers.end(), 100.0f * step + shard);
      losses.push_back(LossOf(shard));
      if (last) reducer.Begin(losses);
      const Floats gradients = GradientsOf(shard);
      // As backward does: from the end, and some buckets are ready early.
      std::copy(gradients.begin() + 500, gradients.end(), reducer.gradients() + 500);
      if (last) reducer.Ready(500);
      std::copy(gradients.begin(), gradients.begin() + 500, reducer.gradients());
      if (!last) reducer.Accumulate(shard == own.begin);
    }
    const absl::Status status = reducer.Finish();
    ASSERT_TRUE(status.ok()) << status;
  }
  sums.gradients.assign(reducer.gradients(), reducer.gradients() + kElements);
  sums.loss = reducer.totals();
}

std::vector<Sums> RunRanks(uint32_t shards, uint32_t ranks) {
  const ShardTree tree(shards, ranks);
  const auto group = MakeLoopbackGroup(ranks);
  std::vector<Sums> sums(ranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] { RunRank(*group[rank], tree, sums[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
  return sums;
}

// The sum of shards [begin, end), written out: the left part has the largest power of two.
Floats TreeSum(uint32_t begin, uint32_t end) {
  if (end - begin == 1) return GradientsOf(begin);
  uint32_t left = 1;
  while (2 * left < end - begin) left *= 2;
  Floats sum = TreeSum(begin, begin + left);
  const Floats right = TreeSum(begin + left, end);
  for (size_t i = 0; i < kElements; ++i) sum[i] += right[i];
  return sum;
}

TEST(TreeBucketReducerTest, SumsHaveTheSameBitsForAnyNumberOfRanks) {
  for (uint32_t shards = 1; shards <= 9; ++shards) {
    const Sums expected = RunRanks(shards, 1)[0];
    EXPECT_TRUE(SameBits(expected.gradients, TreeSum(0, shards)));
    EXPECT_EQ(expected.buffers, Floats(kBuffers, 100));
    for (uint32_t ranks = 2; ranks <= shards; ++ranks) {
      SCOPED_TRACE(testing::Message() << shards << " shards, " << ranks << " ranks");
      for (const Sums& sums : RunRanks(shards, ranks)) {
        EXPECT_TRUE(SameBits(sums.gradients, expected.gradients));
        EXPECT_EQ(sums.buffers, expected.buffers);
        EXPECT_EQ(sums.loss.loss_sum, expected.loss.loss_sum);
        EXPECT_EQ(sums.loss.correct, expected.loss.correct);
      }
    }
  }
}

// The test above depends on the tree: adding the same shards in order gives other bits.
TEST(TreeBucketReducerTest, OtherOrdersHaveOtherBits) {
  Floats in_order = GradientsOf(0);
  for (uint32_t shard = 1; shard < 4; ++shard) {
    const Floats values = GradientsOf(shard);
    for (size_t i = 0; i < kElements; ++i) in_order[i] += values[i];
  }
  EXPECT_FALSE(SameBits(in_order, TreeSum(0, 4)));
}

}  // namespace
}  // namespace muster::train
