#include "cli/text/queue_text.h"

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "cli/text/job_text.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

std::string EstimateLine(const v1::Forecast& forecast, absl::Time now) {
  const absl::string_view basis = forecast.estimate_basis();
  if (!forecast.has_estimated_start_time()) {
    const absl::string_view reason = absl::StripPrefix(basis, "unknown: ");
    return absl::StrCat("start time unknown", reason.empty() ? "" : ": ", reason);
  }
  const absl::Time start = FromProto(forecast.estimated_start_time());
  std::string line = "would start any moment";
  if (start > now) {
    line = absl::StrCat("would start within ", Age(start - now), ", at ",
                        absl::FormatTime("%H:%M:%S", start, absl::LocalTimeZone()));
  }
  if (!basis.empty()) absl::StrAppend(&line, "; estimated from ", basis);
  return line;
}

std::string StartCell(const v1::QueuedJob& queued, absl::Time now) {
  if (!queued.has_estimated_start_time()) return "unknown";
  const absl::Duration left = FromProto(queued.estimated_start_time()) - now;
  return left > absl::ZeroDuration() ? absl::StrCat("in ", Age(left)) : "any moment";
}

// "high", or "low -> overdue".
std::string ClassCell(const v1::QueuedJob& queued) {
  const std::string& own = queued.job().spec().priority_class();
  const std::string& effective = queued.effective_class();
  if (own.empty()) return effective;
  return effective.empty() || effective == own ? own : absl::StrCat(own, " -> ", effective);
}

std::string KeptCell(const v1::QueuedJob& queued, absl::Time now) {
  std::string text = absl::StrJoin(queued.reserved_nodes(), ", ");
  if (text.empty() || !queued.has_reserved_from()) return text;
  const absl::Duration left = FromProto(queued.reserved_from()) - now;
  return left > absl::ZeroDuration() ? absl::StrCat(text, " in ", Age(left)) : text;
}

// "3 of 8", or "3" without a limit.
std::string LimitCell(uint32_t used, uint32_t limit) {
  return limit > 0 ? absl::StrCat(used, " of ", limit) : absl::StrCat(used);
}

std::string Percent(double ratio) { return absl::StrFormat("%.1f %%", 100 * ratio); }

}  // namespace

std::string BlockerLines(const v1::WaitedFor& blocker) {
  std::string text = blocker.has_rank() ? absl::StrCat("rank ", blocker.rank()) : "";
  if (!blocker.node().empty()) absl::StrAppend(&text, text.empty() ? "" : " on ", blocker.node());
  if (!blocker.reason().empty()) absl::StrAppend(&text, text.empty() ? "" : ": ", blocker.reason());
  std::string out = absl::StrCat("  ", Printable(text), "\n");
  if (!blocker.remedy().empty()) {
    absl::StrAppend(&out, "    -> ", Printable(blocker.remedy()), "\n");
  }
  return out;
}

std::string ForecastText(const v1::Forecast& forecast, absl::Time now) {
  std::string out;
  if (forecast.starts_now()) {
    out = absl::StrCat("would start now", forecast.nodes().empty() ? "" : " on ",
                       Printable(absl::StrJoin(forecast.nodes(), ", ")));
  } else {
    out = forecast.queue_position() > 0
              ? absl::StrCat("would wait at position ", forecast.queue_position(), " of the queue")
              : "would wait in the queue";
    if (!forecast.blockers().empty()) out += ":";
    out += "\n";
    for (const v1::WaitedFor& blocker : forecast.blockers()) out += BlockerLines(blocker);
    out += Printable(EstimateLine(forecast, now));
  }
  if (!forecast.preempted_job_ids().empty()) {
    absl::StrAppend(&out, "\nwould preempt ",
                    Printable(absl::StrJoin(forecast.preempted_job_ids(), ", ")));
  }
  return out;
}

std::string QueueTable(const v1::GetQueueResponse& queue, bool wide, size_t width, absl::Time now) {
  std::vector<std::string> heads = {"POSITION", "JOB",       "OWNER",     "CLASS",
                                    "NODES",    "WAITS FOR", "EST. START"};
  if (wide) heads.insert(heads.end(), {"PRIORITY", "RANKS", "AGE", "KEPT FOR IT", "ESTIMATE"});
  Table table(heads);
  for (const v1::QueuedJob& queued : queue.jobs()) {
    const v1::Job& job = queued.job();
    std::vector<std::string> row = {
        // Jobs that wait for something other than resources have none.
        job.queue_position() > 0 ? absl::StrCat(job.queue_position()) : "-",
        job.job_id(),
        job.owner(),
        ClassCell(queued),
        NodesText(job.spec().resources().nodes()),
        queued.waits_for(),
        StartCell(queued, now)};
    if (wide) {
      row.insert(row.end(),
                 {absl::StrCat(job.spec().priority()), absl::StrCat(WorldSize(job)),
                  AgeSince(job.submit_time(), now), KeptCell(queued, now), job.estimate_basis()});
    }
    table.AddRow(std::move(row));
  }
  return table.Text(wide ? std::numeric_limits<size_t>::max() : width);
}

std::string OwnerTable(const v1::GetQueueResponse& queue, size_t width) {
  Table table({"OWNER", "USAGE", "SHARE", "RUNNING SLOTS", "QUEUED JOBS"});
  for (const v1::OwnerUse& owner : queue.owners()) {
    table.AddRow({owner.owner(), Percent(owner.usage_ratio()), Percent(owner.share_ratio()),
                  LimitCell(owner.running_slots(), owner.running_slots_limit()),
                  LimitCell(owner.queued_jobs(), owner.queued_jobs_limit())});
  }
  std::string out = table.Text(width);
  std::vector<std::string> rules;
  if (queue.has_half_life()) {
    rules.push_back(absl::StrCat("usage halves every ", Age(FromProto(queue.half_life()))));
  }
  if (queue.has_ageing()) {
    rules.push_back(absl::StrCat("a job is overdue after ", Age(FromProto(queue.ageing()))));
  }
  if (!rules.empty()) absl::StrAppend(&out, absl::StrJoin(rules, "; "), "\n");
  return out;
}

}  // namespace muster::cli
