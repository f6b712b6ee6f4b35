#include "coordinator/service/http/pages.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/checkpoint_texts.h"
#include "common/phase_text.h"
#include "common/proto_time.h"
#include "common/version.h"
#include "spec/spec.h"

namespace muster::service {
namespace {

// Bounds the page of a large cluster.
constexpr size_t kRowsShown = 500;

// Returns the scrape target; a metrics address without a host is completed with the node's address.
std::string MetricsTarget(const v1::Node& node) {
  const std::string& address = node.metrics_address();
  if (!absl::StartsWith(address, ":")) return address;
  if (absl::StrContains(node.address(), ':')) {
    return absl::StrCat("[", node.address(), "]", address);
  }
  return node.address() + address;
}

std::string Escape(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string Ago(absl::Duration age) {
  if (age < absl::Seconds(1)) return "now";
  if (age < absl::Minutes(2)) return absl::StrFormat("%ds", absl::ToInt64Seconds(age));
  if (age < absl::Hours(2)) return absl::StrFormat("%dm", absl::ToInt64Minutes(age));
  if (age < absl::Hours(48)) return absl::StrFormat("%dh", absl::ToInt64Hours(age));
  return absl::StrFormat("%dd", absl::ToInt64Hours(age) / 24);
}

std::string Badge(const std::string& name) {
  return absl::StrCat("<span class=\"", absl::AsciiStrToLower(name), "\">", name, "</span>");
}

// For a command, only the values that it has reported.
std::string ProgressCell(const v1::Job& job) {
  if (!job.has_progress()) return "";
  const v1::Progress& p = job.progress();
  const bool trains = job.spec().has_train() && p.total_steps() > 0;
  std::string cell = Escape(PhaseText(p));
  if (p.total_steps() > 0) {
    const double share = std::min(1.0, static_cast<double>(p.step()) / p.total_steps());
    absl::StrAppendFormat(&cell, " <meter value=\"%.4f\"></meter> step %d of %d", share, p.step(),
                          p.total_steps());
  } else if (p.step() > 0) {
    absl::StrAppendFormat(&cell, " step %d", p.step());
  }
  if (trains || p.epoch() > 0) absl::StrAppendFormat(&cell, " · epoch %.2f", p.epoch());
  if (trains || p.loss() != 0) absl::StrAppendFormat(&cell, " · loss %.4f", p.loss());
  if (p.images_per_second() > 0) {
    absl::StrAppendFormat(&cell, " · %.0f images/s", p.images_per_second());
  }
  if (p.test_accuracy() > 0) {
    absl::StrAppendFormat(&cell, " · test accuracy %.4f", p.test_accuracy());
  }
  return cell;
}

int64_t FreeSlots(const v1::Node& node) {
  if (node.state() == v1::LOST || !node.conflict().empty()) return 0;
  return std::count_if(node.slots().begin(), node.slots().end(), [](const v1::Slot& slot) {
    return slot.job_id().empty() && slot.unavailable().empty();
  });
}

// Time from the job's first start until it finished, or until now.
std::string Duration(const v1::Job& job, absl::Time now) {
  if (!job.has_start_time()) return "";
  const absl::Duration duration =
      (job.has_finish_time() ? FromProto(job.finish_time()) : now) - FromProto(job.start_time());
  return duration < absl::Seconds(1) ? "0s" : Ago(duration);
}

std::string ReasonCell(const v1::Job& job) {
  if (!job.unplaceable().empty()) {
    return absl::StrCat(Escape(job.reason()), ": ", Escape(job.unplaceable()));
  }
  return absl::StrCat(Escape(job.reason()), job.message().empty() ? "" : ": ",
                      Escape(job.message()));
}

// " cooling down for 25s after 2 failed launches"; `age` is that of the snapshot.
std::string CoolDownText(const v1::Node& node, absl::Duration age) {
  if (!node.has_cool_down()) return "";
  return absl::StrCat(" cooling down for ",
                      Ago(std::max(FromProto(node.cool_down()) - age, absl::ZeroDuration())),
                      " after ", node.failed_launches(), " failed launches");
}

void AppendNodes(const Snapshot& snapshot, absl::Duration age, std::string& page) {
  absl::StrAppend(&page, "<h2>Nodes</h2>");
  if (snapshot.nodes.empty()) {
    absl::StrAppend(&page, "<p>No worker has connected yet.</p>");
    return;
  }
  absl::StrAppend(
      &page, "<table><tr><th>Name<th>State<th>Address<th>Free slots<th>Heartbeat<th>Version</tr>");
  size_t rows = 0;
  for (const v1::Node& node : snapshot.nodes) {
    if (++rows > kRowsShown) break;
    absl::StrAppend(&page, "<tr><td>", Escape(node.name()), "<td>",
                    Badge(v1::NodeState_Name(node.state())), node.cordoned() ? " cordoned" : "",
                    CoolDownText(node, age),
                    node.conflict().empty() ? "" : " in conflict: ", Escape(node.conflict()),
                    "<td>", Escape(node.address()), "<td>", FreeSlots(node), " of ",
                    node.slots_size(), "<td>", Ago(FromProto(node.heartbeat_age()) + age), "<td>",
                    Escape(node.software_version()), "</tr>");
  }
  absl::StrAppend(&page, "</table>");
}

void AppendJobs(const Snapshot& snapshot, absl::Time now, std::string& page) {
  absl::StrAppend(&page, "<h2>Jobs</h2>");
  if (snapshot.jobs.empty()) {
    absl::StrAppend(&page, "<p>No jobs. Submit one: <code>muster submit job.yaml</code></p>");
    return;
  }
  absl::StrAppend(
      &page,
      "<table><tr><th>Job<th>State<th>Generation<th>Duration<th>Age<th>Progress<th>Reason</tr>");
  size_t rows = 0;
  for (const auto& job : snapshot.jobs) {
    if (++rows > kRowsShown) break;
    const std::string id = Escape(job->job_id());
    absl::StrAppend(&page, "<tr><td class=\"text\"><a href=\"", kJobPath, "?id=", id, "\">", id,
                    "</a><td>", Badge(v1::JobState_Name(job->state())), "<td>", job->generation(),
                    "<td>", Duration(*job, now), "<td>", Ago(now - FromProto(job->submit_time())),
                    "<td class=\"text\">", ProgressCell(*job), "<td class=\"text\">",
                    ReasonCell(*job), "</tr>");
  }
  absl::StrAppend(&page, "</table>");
}

constexpr char kHead[] =
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">"
    "<meta http-equiv=\"refresh\" content=\"2\"><title>Muster</title><style>"
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;width:100%}"
    "th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #ddd;"
    "vertical-align:top;white-space:nowrap}"
    "td.text{white-space:pre-wrap;overflow-wrap:anywhere;min-width:12rem}"
    "th{color:#666;font-weight:600}"
    ".ready,.running,.succeeded{color:#116329}.lost,.failed,.timed_out{color:#b3261e}"
    ".suspect,.starting,.stopping{color:#8a5300}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}"
    "th,td{border-color:#444}th{color:#aaa}.ready,.running,.succeeded{color:#6fce84}"
    ".lost,.failed,.timed_out{color:#ff8a80}.suspect,.starting,.stopping{color:#f0b35a}}"
    "</style>";

// Path of the newest checkpoint, or the directory for those to come, and checkpoints that failed.
std::string CheckpointCell(const v1::CheckpointStatus& checkpoint) {
  std::string text = NewestCheckpointPath(checkpoint);
  if (text.empty()) text = checkpoint.dir();
  const std::string failures = CheckpointFailures(checkpoint);
  return Escape(failures.empty() ? text : absl::StrCat(text, " (", failures, ")"));
}

// The facts of a job that the page shows. Its command and environment may contain secrets, and the
// page needs no token.
std::vector<std::pair<const char*, std::string>> Facts(const v1::Job& job, absl::Time now) {
  const v1::FirstFailure& failure = job.first_failure();
  const auto ago = [now](bool set, const google::protobuf::Timestamp& time) {
    return set ? Ago(now - FromProto(time)) + " ago" : "";
  };
  return {
      {"Name", Escape(job.spec().name())},
      {"Owner", Escape(job.owner())},
      {"State", Badge(v1::JobState_Name(job.state()))},
      {"Reason", ReasonCell(job)},
      {"Generation", absl::StrCat(job.generation())},
      {"Restarts", absl::StrCat(job.restarts())},
      {"Ranks", absl::StrCat(spec::MaxWorldSize(job.spec()))},
      {"Submitted", ago(job.has_submit_time(), job.submit_time())},
      {"Started", ago(job.has_start_time(), job.start_time())},
      {"Finished", ago(job.has_finish_time(), job.finish_time())},
      {"Duration", Duration(job, now)},
      {"Progress", ProgressCell(job)},
      {"Checkpoint", CheckpointCell(job.checkpoint())},
      {"Hang", Escape(job.hang().message())},
      {"First failure",
       absl::StrContains(job.message(), failure.message())
           ? ""
           : Escape(absl::StrCat("generation ", failure.generation(), ": ", failure.message()))},
  };
}

}  // namespace

std::string DiscoveryJson(const Snapshot& snapshot) {
  nlohmann::json groups = nlohmann::json::array();
  for (const v1::Node& node : snapshot.nodes) {
    if (node.metrics_address().empty()) continue;
    groups.push_back({{"targets", {MetricsTarget(node)}}, {"labels", {{"node", node.name()}}}});
  }
  // A protobuf string cannot hold invalid UTF-8, but a page must never throw.
  return groups.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string StatusPage(const Snapshot& snapshot, const Time& now) {
  std::string page = absl::StrCat(kHead, "<h1>Muster</h1>");
  AppendNodes(snapshot, std::max(now.steady - snapshot.taken.steady, absl::ZeroDuration()), page);
  AppendJobs(snapshot, now.wall, page);
  absl::StrAppend(&page, "<p>Muster ", kSoftwareVersion, " · cluster ",
                  Escape(snapshot.store.cluster_id), " · commit ", snapshot.store.commit_index,
                  " · <a href=\"/metrics\">metrics</a> · <a href=\"/readyz?verbose\">health</a>"
                  " · <a href=\"/sd\">discovery</a></p></html>\n");
  return page;
}

std::optional<std::string> JobPage(const Snapshot& snapshot, absl::string_view query,
                                   const Time& now) {
  if (!absl::ConsumePrefix(&query, "id=")) return std::nullopt;
  const auto job =
      std::find_if(snapshot.jobs.begin(), snapshot.jobs.end(),
                   [query](const auto& candidate) { return candidate->job_id() == query; });
  if (job == snapshot.jobs.end()) return std::nullopt;
  const std::string id = Escape((*job)->job_id());
  std::string page = absl::StrCat(kHead, "<h1>", id, "</h1><table>");
  for (const auto& [name, value] : Facts(**job, now.wall)) {
    if (!value.empty()) {
      absl::StrAppend(&page, "<tr><th>", name, "<td class=\"text\">", value, "</tr>");
    }
  }
  absl::StrAppend(&page, "</table><p>More: <code>muster describe ", id,
                  "</code> · <a href=\"/\">all jobs</a></p></html>\n");
  return page;
}

}  // namespace muster::service
