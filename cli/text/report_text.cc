#include "cli/text/report_text.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

// Shorter times would be shown as 0.00 s.
constexpr absl::Duration kShortestShown = absl::Milliseconds(5);
// Fewer hours would be shown as 0.0.
constexpr double kFewestHours = 0.05;
constexpr char kProductive[] = "productive";

// Heads of the columns of lost hours, in order. They are short, so that all fit on a terminal.
constexpr std::pair<const char*, const char*> kLostHeads[] = {
    {"starting", "STARTING"},  {"preparing_data", "DATA"},    {"redone", "REDONE"},
    {"evaluating", "EVAL"},    {"checkpoint_stall", "STALL"}, {"recovery", "RECOVERY"},
    {"lost_to_node", "NODES"}, {"requeue", "REQUEUE"},        {"stopping", "STOPPING"},
    {"unrecorded", "UNKNOWN"}};

std::string CauseText(const v1::Goodput::Cause& cause) {
  if (cause.cause() == "lost_to_node") {
    return absl::StrCat("lost to ", cause.node().empty() ? "other nodes" : cause.node());
  }
  return absl::StrReplaceAll(cause.cause(), {{"_", " "}});
}

std::string Percent(double ratio) { return absl::StrFormat("%.1f %%", 100 * ratio); }

// Slot hours by cause.
std::map<std::string, double> HoursOf(const v1::GetReportResponse::Owner& owner) {
  std::map<std::string, double> hours;
  for (const auto& cause : owner.causes()) hours[cause.cause()] = cause.slot_seconds() / 3600;
  return hours;
}

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

std::string GoodputText(const v1::Goodput& goodput) {
  const absl::Duration held = FromProto(goodput.slots_held_time());
  if (held <= absl::ZeroDuration()) return "";
  absl::Duration productive;
  for (const v1::Goodput::Cause& cause : goodput.causes()) {
    if (cause.cause() == kProductive) productive = FromProto(cause.wall_time());
  }
  return absl::StrCat(Percent(goodput.goodput_ratio()), ", ", Elapsed(productive),
                      " productive of ", Elapsed(held), " with slots");
}

std::string TimeByCauseText(const v1::Goodput& goodput) {
  const absl::Duration wall = FromProto(goodput.wall_time());
  std::vector<std::string> lines;
  for (const v1::Goodput::Cause& cause : goodput.causes()) {
    const absl::Duration time = FromProto(cause.wall_time());
    if (time < kShortestShown) continue;
    lines.push_back(absl::StrFormat("%6s  %7s  %s", Elapsed(time),
                                    Percent(absl::FDivDuration(time, wall)), CauseText(cause)));
  }
  return absl::StrJoin(lines, "\n");
}

std::string GoodputCell(const v1::GetReportResponse::Owner& owner) {
  return owner.causes().empty() ? "" : Percent(owner.goodput_ratio());
}

std::string LostHoursTable(const v1::GetReportResponse& report) {
  const std::map<std::string, double> total = HoursOf(report.total());
  std::vector<std::string> causes;
  std::vector<std::string> heads = {"OWNER"};
  for (const auto& [cause, head] : kLostHeads) {
    const auto lost = total.find(cause);
    if (lost == total.end() || lost->second < kFewestHours) continue;
    causes.push_back(cause);
    heads.push_back(head);
  }
  if (causes.empty()) return "";
  Table table(heads);
  const auto add = [&](const std::string& name, const v1::GetReportResponse::Owner& owner) {
    const std::map<std::string, double> hours = HoursOf(owner);
    std::vector<std::string> row = {name};
    for (const std::string& cause : causes) {
      const auto found = hours.find(cause);
      row.push_back(found == hours.end() ? "" : absl::StrFormat("%.1f", found->second));
    }
    table.AddRow(row);
  };
  for (const auto& owner : report.owners()) add(owner.owner(), owner);
  add("total", report.total());
  return table.Text();
}

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
