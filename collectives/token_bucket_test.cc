#include "collectives/token_bucket.h"

#include "gtest/gtest.h"

namespace muster::collectives {
namespace {

class TokenBucketTest : public ::testing::Test {
 protected:
  SteadyTime At(double seconds) const { return start_ + absl::Seconds(seconds); }

  // Returns the time in seconds at which `bytes` taken at `seconds` may be sent.
  double SendTime(TokenBucket& bucket, size_t bytes, double seconds) const {
    return absl::ToDoubleSeconds(bucket.Take(bytes, At(seconds)) - start_);
  }

  const SteadyTime start_{absl::Seconds(1'000'000)};
};

TEST_F(TokenBucketTest, BurstIsSentImmediately) {
  TokenBucket bucket(/*bytes_per_second=*/100, /*burst_bytes=*/50);
  EXPECT_DOUBLE_EQ(SendTime(bucket, 30, 0), 0);
  EXPECT_DOUBLE_EQ(SendTime(bucket, 20, 0), 0);
  EXPECT_NEAR(SendTime(bucket, 10, 0), 0.1, 1e-9);
}

TEST_F(TokenBucketTest, DebtsAccumulate) {
  TokenBucket bucket(100, 0);
  EXPECT_NEAR(SendTime(bucket, 100, 0), 1, 1e-9);
  EXPECT_NEAR(SendTime(bucket, 100, 0), 2, 1e-9);
  EXPECT_NEAR(SendTime(bucket, 50, 1), 2.5, 1e-9);
}

TEST_F(TokenBucketTest, RateHoldsOverLongTime) {
  TokenBucket bucket(1000, 16);
  double now = 0;
  for (int i = 0; i < 500; ++i) now = SendTime(bucket, 10, now);
  EXPECT_NEAR(now, (500 * 10 - 16) / 1000.0, 1e-6);
}

TEST_F(TokenBucketTest, ShortDelaysLoseNoThroughput) {
  TokenBucket bucket(100, 10);
  double left = 0;
  for (int i = 0; i < 20; ++i) left = SendTime(bucket, 10, left + 0.05);
  // 200 bytes less the burst, plus the first 0.05 s without a request.
  EXPECT_NEAR(left, 0.05 + 190 / 100.0, 1e-6);
}

TEST_F(TokenBucketTest, IdleTimeAccruesAtMostOneBurst) {
  TokenBucket bucket(100, 10);
  EXPECT_DOUBLE_EQ(SendTime(bucket, 10, 0), 0);
  EXPECT_DOUBLE_EQ(SendTime(bucket, 10, 1000), 1000);
  EXPECT_NEAR(SendTime(bucket, 10, 1000), 1000.1, 1e-6);
}

TEST_F(TokenBucketTest, BackwardClockAccruesNothing) {
  TokenBucket bucket(100, 0);
  EXPECT_NEAR(SendTime(bucket, 100, 5), 6, 1e-6);
  EXPECT_NEAR(SendTime(bucket, 100, 0), 7, 1e-6);
  EXPECT_NEAR(SendTime(bucket, 100, 5), 8, 1e-6);
}

TEST_F(TokenBucketTest, ZeroRateIsUnlimited) {
  TokenBucket bucket(0, 0);
  EXPECT_DOUBLE_EQ(SendTime(bucket, size_t{1} << 40, 0), 0);
  bucket.SetRate(100, At(0));
  EXPECT_NEAR(SendTime(bucket, 100, 0), 1, 1e-9);
  bucket.SetRate(0, At(1));
  EXPECT_DOUBLE_EQ(SendTime(bucket, size_t{1} << 40, 2), 2);
}

TEST_F(TokenBucketTest, NewRateAppliesToOldDebts) {
  TokenBucket bucket(100, 0);
  EXPECT_NEAR(SendTime(bucket, 100, 0), 1, 1e-9);
  bucket.SetRate(1000, At(0.5));  // debt of 50 bytes remains
  EXPECT_NEAR(SendTime(bucket, 50, 0.5), 0.6, 1e-9);
}

}  // namespace
}  // namespace muster::collectives
