#include "trainer/data/sampler.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace muster::data {
namespace {

TEST(EpochOrderTest, IsAPermutationThatDependsOnSeedAndEpoch) {
  for (const uint32_t samples : {1u, 2u, 3u, 1000u}) {
    std::vector<uint32_t> sorted = EpochOrder(1, 0, samples);
    std::sort(sorted.begin(), sorted.end());
    std::vector<uint32_t> all(samples);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(sorted, all);
  }
  EXPECT_EQ(EpochOrder(1, 5, 1000), EpochOrder(1, 5, 1000));
  EXPECT_NE(EpochOrder(1, 5, 1000), EpochOrder(1, 6, 1000));
  EXPECT_NE(EpochOrder(1, 5, 1000), EpochOrder(2, 5, 1000));
}

TEST(EpochOrderTest, EveryPositionIsEquallyLikely) {
  constexpr uint32_t kSamples = 5;
  constexpr int kEpochs = 20000;
  int counts[kSamples][kSamples] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = EpochOrder(3, epoch, kSamples);
    for (uint32_t i = 0; i < kSamples; ++i) ++counts[i][order[i]];
  }
  for (const auto& of_position : counts) {
    // The expected count is 4000, with a standard deviation of 57.
    for (const int count : of_position) EXPECT_NEAR(count, kEpochs / kSamples, 300);
  }
}

TEST(ShareTest, SlicesAreDisjointCompleteAndNearlyEqual) {
  for (const uint32_t world : {1u, 2u, 3u, 4u, 7u, 64u}) {
    for (const uint64_t samples : {0ull, 1ull, 5ull, 250ull, 256ull}) {
      uint64_t next = 0;
      for (uint32_t rank = 0; rank < world; ++rank) {
        const SampleRange share = Share(samples, rank, world);
        EXPECT_EQ(share.begin, next);
        EXPECT_LE(share.size(), LargestShare(samples, world));
        EXPECT_GE(share.size() + 1, LargestShare(samples, world));
        next = share.end;
      }
      EXPECT_EQ(next, samples);
    }
  }
}

TEST(StepMapTest, EpochContainsEachSampleOnceForAnyWorldSize) {
  constexpr uint32_t kSamples = 1003;
  const StepMap steps = *StepMap::Create(kSamples, 250, false);
  ASSERT_EQ(steps.steps_per_epoch(), 5);
  std::vector<uint32_t> of_one_rank;
  for (const uint32_t world : {1u, 2u, 3u, 4u, 300u}) {
    std::vector<uint32_t> seen;
    for (uint64_t step = 5; step < 10; ++step) {
      const GlobalBatch batch = steps.At(step);
      EXPECT_EQ(batch.epoch, 1);
      const auto order = EpochOrder(1, batch.epoch, kSamples);
      for (uint32_t rank = 0; rank < world; ++rank) {
        const SampleRange share = Share(batch.samples, rank, world);
        for (uint64_t sample = share.begin; sample < share.end; ++sample) {
          seen.push_back(order[batch.first + sample]);
        }
      }
    }
    if (world == 1) of_one_rank = seen;
    EXPECT_EQ(seen, of_one_rank) << world << " ranks";
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
    EXPECT_EQ(seen.size(), kSamples);
  }
}

TEST(StepMapTest, KeepsOrDropsTheLastShortBatch) {
  const StepMap kept = *StepMap::Create(60000, 256, false);
  EXPECT_EQ(kept.steps_per_epoch(), 235);
  EXPECT_EQ(kept.At(234).samples, 96);
  EXPECT_EQ(kept.SamplesBefore(235), 60000);
  EXPECT_EQ(kept.SamplesBefore(236), 60256);
  const StepMap dropped = *StepMap::Create(60000, 256, true);
  EXPECT_EQ(dropped.steps_per_epoch(), 234);
  EXPECT_EQ(dropped.At(233).samples, 256);
  EXPECT_EQ(dropped.SamplesBefore(234), 234 * 256);
}

TEST(RankBatchesTest, TrainingReturnsSlicesOfTheGlobalBatch) {
  const StepMap steps = *StepMap::Create(25, 10, false);
  const RankBatches batches = RankBatches::OfTraining(steps, 1, 3);
  EXPECT_EQ(batches.max_samples(), 4);
  const RankBatch batch = batches.At(5);  // the last step of the second epoch, with 5 samples
  EXPECT_EQ(batch.epoch, 1);
  EXPECT_EQ(batch.global_samples, 5);
  EXPECT_EQ(batch.first_sample, 1);
  EXPECT_EQ(batch.positions.begin, 21);
  EXPECT_EQ(batch.positions.end, 23);
}

TEST(RankBatchesTest, TrainingReturnsConsecutiveSlices) {
  const StepMap steps = *StepMap::Create(25, 10, false);
  const RankBatches batches = RankBatches::OfTraining(steps, 1, 4, /*slices=*/2);
  EXPECT_EQ(batches.max_samples(), 6);
  const RankBatch full = batches.At(0);  // slices from 2, 5 and 7
  EXPECT_EQ(full.first_sample, 2);
  EXPECT_EQ(full.positions.begin, 2);
  EXPECT_EQ(full.positions.end, 7);
  EXPECT_EQ(RankBatches::OfTraining(steps, 0, 4, 4).max_samples(), 10);
}

TEST(RankBatchesTest, EvaluationReturnsPiecesOfTheRanksSlice) {
  const RankBatches batches = RankBatches::OfEvaluation(25, 5, 1, 2);  // 12 to 25
  EXPECT_EQ(batches.max_samples(), 5);
  ASSERT_EQ(batches.pieces(), 3);
  const RankBatch batch = batches.At(2);
  EXPECT_EQ(batch.epoch, 0);
  EXPECT_EQ(batch.global_samples, 25);
  EXPECT_EQ(batch.first_sample, 22);
  EXPECT_EQ(batch.positions.begin, 22);
  EXPECT_EQ(batch.positions.end, 25);
  EXPECT_EQ(RankBatches::OfEvaluation(3, 5, 0, 4).pieces(), 0);
}

TEST(StepMapTest, RejectsInvalidArguments) {
  EXPECT_FALSE(StepMap::Create(0, 1, false).ok());
  EXPECT_FALSE(StepMap::Create(10, 0, false).ok());
  EXPECT_FALSE(StepMap::Create(10, 11, true).ok());
  EXPECT_TRUE(StepMap::Create(10, 11, false).ok());
}

}  // namespace
}  // namespace muster::data
