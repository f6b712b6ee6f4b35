#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/time/proto_time.h"
#include "coordinator/core/owners/visibility.h"
#include "coordinator/service/http/json/json_text.h"
#include "coordinator/service/http/streams/core_query.h"
#include "coordinator/service/http/streams/streams.h"

namespace muster::service {
namespace {

constexpr uint32_t kQueueShown = 10;
constexpr int kBlockersShown = 8;
// The queue is computed on the core thread.
constexpr absl::Duration kQueueAge = absl::Seconds(3);

std::string QuotedList(const std::vector<std::string>& texts) {
  std::string json = "[";
  for (const std::string& text : texts) {
    if (json.size() > 1) json.push_back(',');
    AppendJsonString(text, json);
  }
  return json + "]";
}

// The list of jobs as a page has it.
class JobsDelta {
 public:
  // Sends {"total", "states", "rows": new and changed rows, "order": ids, if they have changed}.
  bool Send(const JobIndex::Window& window, EventWriter& out) {
    std::vector<std::string> order, rows;
    std::map<std::string, std::shared_ptr<const std::string>> sent;
    for (const JobIndex::Row& row : window.rows) {
      order.push_back(row.id);
      if (sent_[row.id] != row.json) rows.push_back(*row.json);
      sent[row.id] = row.json;
    }
    const std::string summary =
        absl::StrCat("\"total\":", window.total, ",\"states\":", JsonCounts(window.states));
    const bool reordered = order != order_ || first_;
    if (!reordered && rows.empty() && summary == summary_) return out.IsOpen();
    std::string json = absl::StrCat("{", summary, ",\"rows\":[", absl::StrJoin(rows, ","), "]");
    if (reordered) absl::StrAppend(&json, ",\"order\":", QuotedList(order));
    sent_ = std::move(sent);
    order_ = std::move(order);
    summary_ = summary;
    first_ = false;
    return out.Send("jobs", json + "}");
  }

 private:
  bool first_ = true;
  std::map<std::string, std::shared_ptr<const std::string>> sent_;  // rows by id
  std::vector<std::string> order_;
  std::string summary_;
};

std::string BlockerJson(const v1::WaitedFor& blocker) {
  return JsonObject()
      .Add("node", blocker.node())
      .Add("reason", blocker.reason())
      .Add("remedy", blocker.remedy())
      .Take();
}

std::string QueuedJobJson(const v1::QueuedJob& queued, const v1::Job* head) {
  JsonObject json;
  json.Add("id", queued.job().job_id())
      .Add("owner", queued.job().owner())
      .Add("class", queued.effective_class())
      .Add("waits_for", queued.waits_for())
      .AddRaw("reserved",
              QuotedList({queued.reserved_nodes().begin(), queued.reserved_nodes().end()}));
  if (queued.has_estimated_start_time()) {
    json.Add("estimate",
             absl::ToDoubleSeconds(FromProto(queued.estimated_start_time()) - absl::UnixEpoch()),
             15);
  }
  if (head != nullptr && !head->waits().empty()) {
    std::vector<std::string> blockers;
    for (const v1::WaitedFor& blocker : head->waits(0).missing()) {
      if (blockers.size() == kBlockersShown) break;
      blockers.push_back(BlockerJson(blocker));
    }
    json.AddRaw("blockers", absl::StrCat("[", absl::StrJoin(blockers, ","), "]"))
        .Add("blocker_count", static_cast<uint64_t>(head->waits(0).missing_size()));
  }
  return json.Take();
}

// {"total", "jobs"}; the first job has its blockers.
absl::StatusOr<std::string> QueueJson(CoreLoop& loop) {
  return AskCore<std::string>(loop, [](core::Core& core, const Time& now) {
    const v1::GetQueueResponse queue = core.GetQueue(kQueueShown, now);
    std::vector<std::string> jobs;
    for (const v1::QueuedJob& queued : queue.jobs()) {
      absl::StatusOr<v1::Job> head = absl::NotFoundError("");
      if (jobs.empty()) head = core.GetJob(JobId(queued.job().job_id()), /*detailed=*/true, now);
      if (head.ok()) core::RemovePrivate(*head);
      jobs.push_back(QueuedJobJson(queued, head.ok() ? &*head : nullptr));
    }
    return absl::StrCat("{\"total\":", queue.total(), ",\"jobs\":[", absl::StrJoin(jobs, ","),
                        "]}");
  });
}

}  // namespace

void StreamOverview(PageSources& sources, const JobIndex::Query& query, EventWriter& out) {
  JobsDelta jobs;
  TextCache::Text queue;
  uint64_t nodes_version = 0;
  bool first = true;
  do {
    if (!jobs.Send(*sources.jobs.Find(query), out)) return;
    sources.nodes.Update(sources.snapshot());
    const NodeIndex::Changes changes = sources.nodes.Since(nodes_version);
    nodes_version = changes.version;
    if (first || !changes.empty()) {
      out.Send("nodes", absl::StrCat("{\"rows\":[", absl::StrJoin(changes.rows, ","),
                                     "],\"gone\":", QuotedList(changes.gone), "}"));
    }
    first = false;
    out.SendIfNew("queue",
                  sources.texts.Get("queue", kQueueAge, [&] { return QueueJson(sources.loop); }),
                  queue);
    out.Tick();
  } while (sources.ticker.Wait(out));
}

}  // namespace muster::service
