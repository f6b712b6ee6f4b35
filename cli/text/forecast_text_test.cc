#include "cli/text/forecast_text.h"

#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

TEST(ForecastTextTest, NamesNodesOfJobThatStartsNow) {
  v1::Forecast forecast;
  forecast.set_starts_now(true);
  forecast.add_nodes("node-1");
  forecast.add_nodes("node-2");
  EXPECT_EQ(ForecastText(forecast, kNow), "would start now on node-1, node-2");
}

TEST(ForecastTextTest, ListsBlockersWithRemediesAndEstimate) {
  v1::Forecast forecast;
  forecast.set_queue_position(3);
  v1::WaitedFor& blocker = *forecast.add_blockers();
  blocker.set_node("gpu-3");
  blocker.set_reason("cordoned: ECC errors");
  blocker.set_remedy("muster node uncordon gpu-3");
  forecast.set_estimate_basis("unknown: jobs that run or are ahead have no time limit");
  EXPECT_EQ(ForecastText(forecast, kNow),
            "would wait at position 3 of the queue:\n"
            "  gpu-3: cordoned: ECC errors\n"
            "    -> muster node uncordon gpu-3\n"
            "start time unknown: jobs that run or are ahead have no time limit");
  forecast.set_estimate_basis("time limits and progress of running jobs");
  *forecast.mutable_estimated_start_time() = ToProto(kNow + absl::Minutes(5));
  EXPECT_THAT(ForecastText(forecast, kNow), HasSubstr("\nwould start within 5m, at "));
  EXPECT_THAT(ForecastText(forecast, kNow),
              HasSubstr("; estimated from time limits and progress of running jobs"));
}

TEST(ForecastTextTest, NamesJobsThatWouldBePreempted) {
  v1::Forecast forecast;
  forecast.add_preempted_job_ids("low-x7k2");
  *forecast.mutable_estimated_start_time() = ToProto(kNow);
  const std::string text = ForecastText(forecast, kNow);
  EXPECT_THAT(text, StartsWith("would wait in the queue\nwould start any moment"));
  EXPECT_THAT(text, HasSubstr("\nwould preempt low-x7k2"));
}

}  // namespace
}  // namespace muster::cli
