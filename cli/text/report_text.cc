#include "cli/text/report_text.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "cli/text/goodput_text.h"
#include "common/proto_time.h"

namespace muster::cli {
namespace {

using Owner = v1::GetReportResponse::Owner;

std::string Hours(double slot_seconds) { return absl::StrFormat("%.1f", slot_seconds / 3600); }

std::string WaitCell(bool known, const google::protobuf::Duration& wait) {
  return known ? Age(FromProto(wait)) : "";
}

std::vector<std::string> Row(const std::string& name, const Owner& owner, bool wide) {
  std::vector<std::string> row = {name,
                                  Hours(owner.cpu_slot_seconds()),
                                  Hours(owner.gpu_slot_seconds()),
                                  absl::StrCat(owner.jobs_submitted()),
                                  absl::StrCat(owner.jobs_failed()),
                                  absl::StrCat(owner.jobs_cancelled()),
                                  absl::StrCat(owner.jobs_timed_out()),
                                  WaitCell(owner.has_median_wait(), owner.median_wait()),
                                  WaitCell(owner.has_wait_p95(), owner.wait_p95()),
                                  GoodputCell(owner)};
  if (wide) {
    row.push_back(absl::StrCat(owner.jobs_succeeded()));
    row.push_back(WaitCell(owner.has_longest_wait(), owner.longest_wait()));
  }
  return row;
}

}  // namespace

std::string ReportText(const v1::GetReportResponse& report, bool wide) {
  std::vector<std::string> heads = {"OWNER",     "CPU HOURS", "GPU HOURS",   "JOBS",     "FAILED",
                                    "CANCELLED", "TIMED OUT", "MEDIAN WAIT", "P95 WAIT", "GOODPUT"};
  if (wide) heads.insert(heads.end(), {"SUCCEEDED", "LONGEST WAIT"});
  Table table(heads);
  for (const Owner& owner : report.owners()) table.AddRow(Row(owner.owner(), owner, wide));
  table.AddRow(Row("total", report.total(), wide));
  std::string out = table.Text();
  const std::string lost = LostHoursTable(report);
  if (!lost.empty()) absl::StrAppend(&out, "\nslot hours that were not productive:\n", lost);
  absl::StrAppendFormat(
      &out, "\nutilization since %s UTC: CPU slots %.1f %%, GPU slots %.1f %%\n",
      absl::FormatTime("%Y-%m-%d %H:%M", FromProto(report.since()), absl::UTCTimeZone()),
      100 * report.cpu_utilization_ratio(), 100 * report.gpu_utilization_ratio());
  return out;
}

}  // namespace muster::cli
