#include "cli/text/queue_text.h"

#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/output/table.h"
#include "cli/output/words.h"
#include "cli/text/job_text.h"
#include "common/proto_time.h"

namespace muster::cli {
namespace {

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

std::string QueueTable(const v1::GetQueueResponse& queue, bool wide, size_t width, absl::Time now) {
  std::vector<std::string> heads = {"POSITION", "JOB",       "OWNER",     "CLASS",
                                    "NODES",    "WAITS FOR", "EST. START"};
  if (wide) {
    for (const char* head : {"PRIORITY", "RANKS", "AGE", "KEPT FOR IT", "ESTIMATE"}) {
      heads.push_back(head);
    }
  }
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
      row.push_back(absl::StrCat(job.spec().priority()));
      row.push_back(absl::StrCat(WorldSize(job)));
      row.push_back(AgeSince(job.submit_time(), now));
      row.push_back(KeptCell(queued, now));
      row.push_back(job.estimate_basis());
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
