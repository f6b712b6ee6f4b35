#include "cli/text/report_text.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_split.h"
#include "common/time/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

void AddCause(const std::string& name, const std::string& node, absl::Duration time,
              v1::Goodput& goodput) {
  v1::Goodput::Cause& cause = *goodput.add_causes();
  cause.set_cause(name);
  cause.set_node(node);
  *cause.mutable_wall_time() = ToProto(time);
}

v1::Goodput MakeGoodput() {
  v1::Goodput goodput;
  AddCause("queued", "", absl::Seconds(31), goodput);
  AddCause("preparing_data", "", absl::Milliseconds(1250), goodput);
  AddCause("productive", "", absl::Minutes(112), goodput);
  AddCause("evaluating", "", absl::Milliseconds(4), goodput);
  AddCause("lost_to_node", "", absl::Seconds(20), goodput);
  AddCause("lost_to_node", "gpu-3", absl::Minutes(8), goodput);
  *goodput.mutable_wall_time() = ToProto(absl::Minutes(122));
  *goodput.mutable_slots_held_time() = ToProto(absl::Minutes(121));
  goodput.set_goodput_ratio(112 / 121.0);
  return goodput;
}

TEST(GoodputTextTest, ShowsProductiveShareOfTimeWithSlots) {
  EXPECT_EQ(GoodputText(MakeGoodput()), "92.6 %, 1h52m productive of 2h1m with slots");
  EXPECT_EQ(GoodputText(v1::Goodput()), "");
}

TEST(GoodputTextTest, ShowsTimeByCause) {
  EXPECT_EQ(TimeByCauseText(MakeGoodput()),
            "31.0 s    0.4 %  queued\n"
            "1.25 s    0.0 %  preparing data\n"
            " 1h52m   91.8 %  productive\n"
            "20.0 s    0.3 %  lost to other nodes\n"
            "    8m    6.6 %  lost to gpu-3");
  EXPECT_EQ(TimeByCauseText(v1::Goodput()), "");
}

TEST(GoodputTextTest, ShowsLostHoursByOwner) {
  v1::GetReportResponse report;
  const auto add = [](const std::string& name, double hours, v1::GetReportResponse::Owner& owner) {
    auto& cause = *owner.add_causes();
    cause.set_cause(name);
    cause.set_slot_seconds(hours * 3600);
  };
  v1::GetReportResponse::Owner& alice = *report.add_owners();
  alice.set_owner("alice");
  alice.set_goodput_ratio(0.9);
  add("productive", 9, alice);
  add("redone", 1, alice);
  v1::GetReportResponse::Owner& bob = *report.add_owners();
  bob.set_owner("bob");
  add("lost_to_node", 2.25, bob);
  for (const char* cause : {"productive", "redone", "lost_to_node"}) {
    add(cause, 3, *report.mutable_total());
  }
  add("evaluating", 0.04, *report.mutable_total());
  EXPECT_EQ(LostHoursTable(report),
            "OWNER  REDONE  NODES\n"
            "alice  1.0     -\n"
            "bob    -       2.2\n"
            "total  3.0     3.0\n");
  EXPECT_EQ(GoodputCell(alice), "90.0 %");
  EXPECT_EQ(GoodputCell(v1::GetReportResponse::Owner()), "");
  EXPECT_EQ(LostHoursTable(v1::GetReportResponse()), "");
}

TEST(GoodputTextTest, TableOfAllCausesFitsOnTerminal) {
  v1::GetReportResponse report;
  for (const char* name : {"starting", "preparing_data", "redone", "evaluating", "checkpoint_stall",
                           "recovery", "lost_to_node", "requeue", "stopping"}) {
    auto& cause = *report.mutable_total()->add_causes();
    cause.set_cause(name);
    cause.set_slot_seconds(3600 * 123.4);
  }
  for (const auto& line : absl::StrSplit(LostHoursTable(report), '\n')) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

using ::testing::HasSubstr;

v1::GetReportResponse Report() {
  v1::GetReportResponse report;
  auto& owner = *report.add_owners();
  owner.set_owner("alice");
  owner.set_cpu_slot_seconds(5400);
  owner.set_jobs_submitted(12);
  owner.set_jobs_succeeded(9);
  owner.set_jobs_failed(2);
  owner.set_jobs_cancelled(3);
  owner.set_jobs_timed_out(4);
  *owner.mutable_median_wait() = ToProto(absl::Seconds(8));
  *owner.mutable_wait_p95() = ToProto(absl::Seconds(64));
  *owner.mutable_longest_wait() = ToProto(absl::Seconds(90));
  auto& redone = *owner.add_causes();
  redone.set_cause("redone");
  redone.set_slot_seconds(540);
  owner.set_goodput_ratio(0.9);
  *report.mutable_total() = owner;
  *report.mutable_since() = ToProto(absl::FromUnixSeconds(1'800'000'000));
  report.set_cpu_utilization_ratio(0.423);
  return report;
}

TEST(ReportTextTest, ShowsUseByOwnerAndUtilization) {
  EXPECT_EQ(ReportText(Report(), /*wide=*/false),
            "OWNER  CPU HOURS  GPU HOURS  JOBS  FAILED  CANCELLED  TIMED OUT  MEDIAN WAIT  P95 "
            "WAIT  GOODPUT\n"
            "alice  1.5        0.0        12    2       3          4          8s           1m4s   "
            "   90.0 %\n"
            "total  1.5        0.0        12    2       3          4          8s           1m4s   "
            "   90.0 %\n"
            "\n"
            "slot hours that were not productive:\n"
            "OWNER  REDONE\n"
            "alice  0.1\n"
            "total  0.1\n"
            "\n"
            "utilization since 2027-01-15 08:00 UTC: CPU slots 42.3 %, GPU slots 0.0 %\n");
}

TEST(ReportTextTest, WideTableAddsSuccessesAndLongestWait) {
  EXPECT_THAT(ReportText(Report(), /*wide=*/true), HasSubstr("GOODPUT  SUCCEEDED  LONGEST WAIT\n"));
  EXPECT_THAT(ReportText(Report(), /*wide=*/true), HasSubstr("9          1m30s\n"));
}

TEST(ReportTextTest, OmitsWaitsWithoutStarts) {
  EXPECT_THAT(
      ReportText(v1::GetReportResponse(), /*wide=*/false),
      HasSubstr("total  0.0        0.0        0     0       0          0          -            -"
                "         -\n"));
}

}  // namespace

}  // namespace muster::cli
