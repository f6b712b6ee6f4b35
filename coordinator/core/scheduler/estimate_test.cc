#include "coordinator/core/scheduler/estimate.h"

#include "gtest/gtest.h"

namespace muster::core {
namespace {

Forecast MakeCluster(std::vector<Forecast::Pool> nodes) {
  Forecast forecast;
  forecast.pools["cpu"] = std::move(nodes);
  return forecast;
}

QueuedJob MakeJob(uint32_t nodes, uint32_t ranks_per_node,
                  absl::Duration length = absl::InfiniteDuration()) {
  QueuedJob job;
  job.shape.min_nodes = job.shape.max_nodes = nodes;
  job.shape.ranks_per_node = ranks_per_node;
  job.kinds = {"gpu", "cpu"};
  job.length = length;
  return job;
}

constexpr absl::Duration kMinute = absl::Minutes(1);

TEST(EstimateStart, JobThatFitsStartsNow) {
  EXPECT_EQ(EstimateStart(MakeCluster({{2, 1}, {2, 1}}), {MakeJob(2, 1)}), absl::ZeroDuration());
}

TEST(EstimateStart, WaitsForLastNeededSlot) {
  Forecast forecast = MakeCluster({{2, 0}, {2, 0}});
  forecast.releases = {
      {3 * kMinute, "cpu", 0, 2}, {kMinute, "cpu", 1, 1}, {9 * kMinute, "cpu", 1, 1}};
  EXPECT_EQ(EstimateStart(forecast, {MakeJob(1, 1)}), kMinute);
  EXPECT_EQ(EstimateStart(forecast, {MakeJob(2, 1)}), 3 * kMinute);
  EXPECT_EQ(EstimateStart(forecast, {MakeJob(2, 2)}), 9 * kMinute);
}

TEST(EstimateStart, JobsAheadStartFirstAndReleaseTheirSlots) {
  Forecast forecast = MakeCluster({{1, 0}});
  forecast.releases = {{kMinute, "cpu", 0, 1}};
  EXPECT_EQ(EstimateStart(forecast, {MakeJob(1, 1, 5 * kMinute), MakeJob(1, 1)}), 6 * kMinute);
  EXPECT_EQ(EstimateStart(forecast, {MakeJob(1, 1), MakeJob(1, 1)}), std::nullopt)
      << "the job ahead has no time limit";
}

TEST(EstimateStart, HeadBlocksSmallerJobs) {
  Forecast forecast = MakeCluster({{2, 1}});
  forecast.releases = {{kMinute, "cpu", 0, 1}};
  EXPECT_EQ(EstimateStart(forecast, {MakeJob(1, 2, kMinute), MakeJob(1, 1)}), 2 * kMinute);
}

TEST(EstimateStart, HandlesWholeNodesAndSlotKinds) {
  Forecast forecast = MakeCluster({{4, 3}});
  forecast.pools["gpu"] = {{1, 0}};
  forecast.releases = {{kMinute, "cpu", 0, 1}, {2 * kMinute, "gpu", 0, 1}};
  QueuedJob whole = MakeJob(1, 2);
  whole.shape.devices_per_rank = std::nullopt;
  EXPECT_EQ(EstimateStart(forecast, {whole}), kMinute);
  QueuedJob gpu = MakeJob(1, 1);
  gpu.kinds = {"gpu"};
  EXPECT_EQ(EstimateStart(forecast, {gpu}), 2 * kMinute);
}

TEST(EstimateStart, ReturnsNulloptForImpossibleAndTooLongQueues) {
  EXPECT_EQ(EstimateStart(MakeCluster({{1, 1}}), {MakeJob(2, 1)}), std::nullopt);
  EXPECT_EQ(EstimateStart(MakeCluster({}), {MakeJob(1, 1)}), std::nullopt);
  EXPECT_EQ(EstimateStart(MakeCluster({{1, 1}}),
                          std::vector<QueuedJob>(kForecastJobs + 1, MakeJob(1, 1, kMinute))),
            std::nullopt);
  EXPECT_TRUE(EstimateStart(MakeCluster({{1, 1}}),
                            std::vector<QueuedJob>(kForecastJobs, MakeJob(1, 1, kMinute)))
                  .has_value());
}

// Slots of jobs that have exceeded their time limit count as free now.
TEST(EstimateStart, OverdueReleaseCountsAsNow) {
  Forecast forecast = MakeCluster({{1, 0}});
  forecast.releases = {{-kMinute, "cpu", 0, 1}};
  EXPECT_EQ(EstimateStart(forecast, {MakeJob(1, 1)}), absl::ZeroDuration());
}

}  // namespace
}  // namespace muster::core
