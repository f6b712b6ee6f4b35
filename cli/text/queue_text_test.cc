#include "cli/text/queue_text.h"

#include "absl/strings/str_split.h"
#include "cli/output/words.h"
#include "common/time/proto_time.h"
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

v1::GetQueueResponse Queue() {
  v1::GetQueueResponse queue;
  v1::QueuedJob& first = *queue.add_jobs();
  first.mutable_job()->set_job_id("train-x7k2");
  first.mutable_job()->set_owner("alice");
  first.mutable_job()->set_queue_position(1);
  first.mutable_job()->mutable_spec()->set_priority_class("low");
  first.mutable_job()->mutable_spec()->mutable_resources()->mutable_nodes()->set_min(2);
  first.mutable_job()->mutable_spec()->mutable_resources()->mutable_nodes()->set_max(2);
  first.mutable_job()->mutable_spec()->mutable_resources()->set_ranks_per_node(4);
  first.set_effective_class("overdue");
  first.set_waits_for("resources, which are kept for it");
  first.add_reserved_nodes("node-1");
  *first.mutable_reserved_from() = ToProto(kNow + absl::Minutes(3));
  *first.mutable_estimated_start_time() = ToProto(kNow + absl::Minutes(3));
  v1::QueuedJob& second = *queue.add_jobs();
  second.mutable_job()->set_job_id("eval-9qd3");
  second.mutable_job()->set_owner("bob");
  second.mutable_job()->mutable_spec()->set_priority_class("high");
  second.set_effective_class("high");
  second.set_waits_for("job prep-9k2 has not succeeded yet");
  v1::OwnerUse& owner = *queue.add_owners();
  owner.set_owner("alice");
  owner.set_usage_ratio(0.75);
  owner.set_share_ratio(0.5);
  owner.set_running_slots(3);
  owner.set_running_slots_limit(8);
  owner.set_queued_jobs(2);
  *queue.mutable_half_life() = ToProto(absl::Hours(24 * 7));
  return queue;
}

TEST(QueueTextTest, ListsJobsInTheOrderOfTheirStart) {
  const std::string text = QueueTable(Queue(), /*wide=*/false, 200, kNow);
  EXPECT_THAT(text, StartsWith("POSITION  JOB         OWNER  CLASS"));
  EXPECT_THAT(text,
              HasSubstr("1         train-x7k2  alice  low -> overdue  2      resources, which "
                        "are kept for it    in 3m\n"));
  EXPECT_THAT(text, HasSubstr("\n-         eval-9qd3   bob    high "));
  EXPECT_THAT(text, HasSubstr("  unknown\n"));
}

TEST(QueueTextTest, WideTableNamesReservedNodes) {
  EXPECT_THAT(QueueTable(Queue(), /*wide=*/true, 60, kNow), HasSubstr("node-1 in 3m"));
}

TEST(QueueTextTest, WrapsToTheTerminal) {
  for (const auto& line : absl::StrSplit(QueueTable(Queue(), false, 70, kNow), '\n')) {
    EXPECT_LE(DisplayWidth(line), 70u) << line;
  }
}

TEST(QueueTextTest, ShowsUseAndLimitsOfOwners) {
  EXPECT_EQ(OwnerTable(Queue(), 80),
            "OWNER  USAGE   SHARE   RUNNING SLOTS  QUEUED JOBS\n"
            "alice  75.0 %  50.0 %  3 of 8         2\n"
            "usage halves every 7d\n");
}

}  // namespace

}  // namespace muster::cli
