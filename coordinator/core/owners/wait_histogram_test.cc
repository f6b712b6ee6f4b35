#include "coordinator/core/owners/wait_histogram.h"

#include "gtest/gtest.h"

namespace muster::core {
namespace {

TEST(WaitPercentile, IsAbsentWithoutWaits) { EXPECT_EQ(WaitPercentile({}, 0.5), std::nullopt); }

TEST(WaitPercentile, RoundsUpToPowerOfTwoSeconds) {
  WaitCounts counts;
  for (int i = 0; i < 19; ++i) AddWait(absl::Milliseconds(100), counts);
  AddWait(absl::Seconds(5), counts);
  EXPECT_EQ(WaitPercentile(counts, 0.5), absl::Seconds(1));
  EXPECT_EQ(WaitPercentile(counts, 0.95), absl::Seconds(1));
  EXPECT_EQ(WaitPercentile(counts, 1), absl::Seconds(8));
  EXPECT_EQ(counts.size(), 4) << "no trailing zeros are stored";
}

TEST(WaitPercentile, SeparatesBucketsAtPowersOfTwo) {
  WaitCounts counts;
  AddWait(absl::Seconds(4), counts);
  EXPECT_EQ(WaitPercentile(counts, 1), absl::Seconds(8));
  AddWait(absl::Hours(24 * 365), counts);
  EXPECT_EQ(WaitPercentile(counts, 1), absl::Seconds(1 << 21));
}

TEST(MergeWaits, AddsCounts) {
  WaitCounts a, b;
  AddWait(absl::Seconds(1), a);
  AddWait(absl::Seconds(100), b);
  MergeWaits(b, a);
  EXPECT_EQ(WaitPercentile(a, 0.5), absl::Seconds(2));
  EXPECT_EQ(WaitPercentile(a, 1), absl::Seconds(128));
}

}  // namespace
}  // namespace muster::core
