#include "trainer/strategy/buckets.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::train {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::vector<std::pair<size_t, size_t>> Make(const std::vector<size_t>& counts, size_t first,
                                            size_t others) {
  std::vector<std::pair<size_t, size_t>> result;
  for (const Bucket& bucket : MakeBuckets(counts, first, others)) {
    result.emplace_back(bucket.first, bucket.end);
  }
  return result;
}

TEST(BucketsTest, StartsAtLastParameterWithSmallBucket) {
  EXPECT_THAT(Make({10, 10, 10, 10, 10}, 40, 80), ElementsAre(Pair(4, 5), Pair(2, 4), Pair(0, 2)));
}

TEST(BucketsTest, PutsLargeParameterInItsOwnBucket) {
  EXPECT_THAT(Make({1, 1000, 1}, 4, 100), ElementsAre(Pair(2, 3), Pair(1, 2), Pair(0, 1)));
}

TEST(BucketsTest, KeepsRemainderSmallerThanBucket) {
  EXPECT_THAT(Make({1, 1, 1}, 4, 4000), ElementsAre(Pair(2, 3), Pair(0, 2)));
}

TEST(BucketsTest, UsesOneBucketForSmallModels) {
  EXPECT_THAT(Make({1, 1, 1}, 4000, 4000), ElementsAre(Pair(0, 3)));
  EXPECT_THAT(Make({}, 4000, 4000), ElementsAre(Pair(0, 0)));
}

}  // namespace
}  // namespace muster::train
