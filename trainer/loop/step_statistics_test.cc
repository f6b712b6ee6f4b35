#include "trainer/loop/step_statistics.h"

#include "gtest/gtest.h"

namespace muster::train {
namespace {

StepTimes Times(int milliseconds) {
  return {absl::Milliseconds(milliseconds), absl::Milliseconds(milliseconds / 10),
          absl::Milliseconds(milliseconds / 5), absl::Milliseconds(milliseconds / 2)};
}

TEST(StepStatisticsTest, NothingIsZero) {
  EXPECT_EQ(StepStatistics(0).Median(10).step, absl::ZeroDuration());
}

TEST(StepStatisticsTest, MedianOfEachAfterTheSkippedOnes) {
  StepStatistics statistics(2);
  for (const int time : {100000, 100000, 30, 10, 20}) statistics.Add(Times(time));
  const StepTimes median = statistics.Median(1000);
  EXPECT_EQ(median.step, absl::Milliseconds(20));
  EXPECT_EQ(median.data_wait, absl::Milliseconds(2));
  EXPECT_EQ(median.exposed_communication, absl::Milliseconds(4));
  EXPECT_EQ(median.kernels, absl::Milliseconds(10));
}

TEST(StepStatisticsTest, AWindowOfTheNewest) {
  StepStatistics statistics(0);
  for (int i = 0; i < 40000; ++i) statistics.Add(Times(i < 39999 - 10 ? 10 : 50));
  EXPECT_EQ(statistics.Median(11).step, absl::Milliseconds(50));
  EXPECT_EQ(statistics.Median(100).step, absl::Milliseconds(10));
}

}  // namespace
}  // namespace muster::train
