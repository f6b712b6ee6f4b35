#include "trainer/loop/loss_monitor.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace muster::train {
namespace {

class LossMonitorTest : public ::testing::Test {
 protected:
  void Add(double loss) {
    const auto anomaly = monitor_.Add(++step_, loss);
    if (anomaly.has_value()) anomalies_.push_back(*anomaly);
  }
  // A loss that falls from 2.3 to its tenth, with noise of 15 %.
  void Train(int steps) {
    for (int i = 0; i < steps; ++i) {
      const double level = 0.23 + 2.07 * std::exp(-static_cast<double>(step_) / 500);
      Add(level * std::exp(0.15 * normal_(random_)));
    }
  }

  LossMonitor monitor_;
  std::mt19937_64 random_{7};
  std::normal_distribution<double> normal_;
  uint64_t step_ = 0;
  std::vector<v1::LossAnomaly> anomalies_;
};

TEST_F(LossMonitorTest, FindsNothingInAnOrdinaryTraining) {
  Train(5000);
  EXPECT_TRUE(anomalies_.empty()) << anomalies_[0].ShortDebugString();
}

TEST_F(LossMonitorTest, FindsNothingWhenTheLossIsNearZero) {
  Train(500);
  // Single samples dominate a tiny loss: its distribution has a heavy tail.
  for (int i = 0; i < 5000; ++i) Add(1e-3 * std::exp(1.5 * normal_(random_)));
  EXPECT_TRUE(anomalies_.empty()) << anomalies_[0].ShortDebugString();
}

TEST_F(LossMonitorTest, ReportsASpikeOnce) {
  Train(300);
  for (const double loss : {9.0, 14.0, 8.0}) Add(loss);
  Train(100);
  ASSERT_EQ(anomalies_.size(), 1u);
  EXPECT_EQ(anomalies_[0].step(), 301u);
  EXPECT_EQ(anomalies_[0].loss(), 9.0);
  EXPECT_NEAR(anomalies_[0].typical(), 1.4, 0.3);
  // The loss has come down, so that another spike is another anomaly.
  Add(20);
  ASSERT_EQ(anomalies_.size(), 2u);
  EXPECT_EQ(anomalies_[1].step(), 404u);
}

TEST_F(LossMonitorTest, ReportsALastingRiseOnce) {
  Train(300);
  for (int i = 0; i < 500; ++i) Add(30 * std::exp(0.15 * normal_(random_)));
  EXPECT_EQ(anomalies_.size(), 1u);
  // It is the new level.
  Add(400);
  EXPECT_EQ(anomalies_.size(), 2u);
}

TEST_F(LossMonitorTest, ReportsTheFirstOfARunOfNonFiniteLosses) {
  const double infinity = std::numeric_limits<double>::infinity();
  Add(infinity);
  for (int i = 0; i < 3; ++i) Add(std::nan(""));
  Train(50);
  Add(-infinity);
  ASSERT_EQ(anomalies_.size(), 2u);
  EXPECT_EQ(anomalies_[0].step(), 1u);
  EXPECT_EQ(anomalies_[0].loss(), infinity);
  EXPECT_EQ(anomalies_[1].step(), 55u);
  EXPECT_EQ(anomalies_[1].typical(), 0);
}

TEST_F(LossMonitorTest, DoesNotCompareTheFirstLosses) {
  for (const double loss : {7.0, 6.5, 80.0, 5.0, 4.0}) Add(loss);
  EXPECT_TRUE(anomalies_.empty());
}

TEST_F(LossMonitorTest, FindsASpikeAmongEqualLosses) {
  for (int i = 0; i < 100; ++i) Add(2.0);
  Add(2.1);
  EXPECT_TRUE(anomalies_.empty());
  Add(3.5);
  EXPECT_EQ(anomalies_.size(), 1u);
}

}  // namespace
}  // namespace muster::train
