#include "trainer/strategy/step_statistics.h"

#include "gtest/gtest.h"

namespace muster::train {
namespace {

StepTimes Times(int milliseconds) {
  return {absl::Milliseconds(milliseconds), absl::Milliseconds(milliseconds / 10),
          absl::Milliseconds(milliseconds / 5), absl::Milliseconds(milliseconds / 2)};
}

TEST(StepStatisticsTest, ReturnsZeroWithoutSteps) {
  EXPECT_EQ(StepStatistics().Median(10).step, absl::ZeroDuration());
  EXPECT_EQ(StepStatistics().TypicalMedian().step, absl::ZeroDuration());
}

TEST(StepStatisticsTest, ReturnsMediansAfterWarmUp) {
  StepStatistics statistics;
  for (size_t i = 0; i < DurationStatistics::kWarmupSteps; ++i) statistics.Add(Times(100000));
  EXPECT_EQ(statistics.TypicalMedian().step, absl::Milliseconds(100000));
  for (const int time : {30, 10, 20}) statistics.Add(Times(time));
  const StepTimes median = statistics.TypicalMedian();
  EXPECT_EQ(median.step, absl::Milliseconds(20));
  EXPECT_EQ(median.data_wait, absl::Milliseconds(2));
  EXPECT_EQ(median.exposed_communication, absl::Milliseconds(4));
  EXPECT_EQ(median.kernels, absl::Milliseconds(10));
}

TEST(StepStatisticsTest, UsesLastStepsOfWindow) {
  StepStatistics statistics;
  for (int i = 0; i < 40000; ++i) statistics.Add(Times(i < 39999 - 10 ? 10 : 50));
  EXPECT_EQ(statistics.Median(11).step, absl::Milliseconds(50));
  EXPECT_EQ(statistics.Median(100).step, absl::Milliseconds(10));
  EXPECT_EQ(statistics.TypicalMedian().step, absl::Milliseconds(10));
}

TEST(DurationStatisticsTest, SteadyMedianIsZeroDuringWarmUp) {
  DurationStatistics statistics(2);
  for (size_t i = 0; i < DurationStatistics::kWarmupSteps; ++i) {
    statistics.Add({absl::Seconds(1), absl::Seconds(2)});
  }
  EXPECT_EQ(statistics.SteadyMedian()[1], absl::ZeroDuration());
  statistics.Add({absl::Seconds(3), absl::Seconds(4)});
  EXPECT_EQ(statistics.SteadyMedian()[1], absl::Seconds(4));
}

}  // namespace
}  // namespace muster::train
