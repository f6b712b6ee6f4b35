#include "cli/text/report_text.h"

#include "common/proto_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::cli {
namespace {

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
