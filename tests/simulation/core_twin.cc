#include "tests/simulation/core_twin.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/reasons.h"
#include "coordinator/core/records.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::simulation {
namespace {

// Returns the write as text; empty for one that a warning may add: the number of the commit, the
// warning's event, and the job's record, whose contents Describe(core) compares.
std::string WithoutWarnings(const store::Mutation& write) {
  if (write.key == core::kCommitKey || absl::StartsWith(write.key, core::kJobPrefix)) return "";
  if (!absl::StartsWith(write.key, core::kEventPrefix) || !write.value.has_value()) {
    return absl::StrCat(write.key, " ", write.value.value_or("deleted"));
  }
  v1::EventRecord record;
  record.ParseFromString(*write.value);
  if (record.event().type() == core::events::kWarning) return "";
  record.mutable_event()->clear_sequence();
  return record.ShortDebugString();
}

// The step's effects as lines.
std::vector<std::string> Describe(const core::Effects& effects) {
  std::vector<std::string> lines;
  for (const store::Mutation& write : effects.writes) {
    std::string line = WithoutWarnings(write);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  for (core::Send send : effects.sends) {
    if (send.message.has_welcome()) send.message.mutable_welcome()->clear_commit_index();
    if (send.message.has_heartbeat_ack()) {
      send.message.mutable_heartbeat_ack()->clear_commit_index();
    }
    lines.push_back(absl::StrCat(send.session.value(), " ", send.message.ShortDebugString()));
  }
  for (const core::Reply& reply : effects.replies) {
    lines.push_back(absl::StrCat("reply ", reply.request.value()));
  }
  for (const core::CloseSession& close : effects.closes) {
    lines.push_back(absl::StrCat("close ", close.session.value(), " ", close.status.ToString()));
  }
  return lines;
}

std::vector<std::string> Describe(const core::Core& core, Time now) {
  std::vector<std::string> lines;
  v1::ListJobsRequest all;
  all.set_include_finished(true);
  for (const v1::Job& brief : core.ListJobs(all, now)) {
    v1::Job job = *core.GetJob(JobId(brief.job_id()), /*detailed=*/true, now);
    job.clear_warnings();
    lines.push_back(job.ShortDebugString());
  }
  for (const v1::Node& node : core.ListNodes(now)) lines.push_back(node.ShortDebugString());
  for (const core::LiveWait& wait : core.ListWaits()) {
    lines.push_back(absl::StrCat(wait.job.value(), " waits for ", wait.what, " of ", wait.missing,
                                 " since ", absl::FormatDuration(wait.since.since_start())));
  }
  lines.push_back(
      absl::StrCat("next deadline ", absl::FormatDuration(core.NextDeadline().since_start())));
  return lines;
}

std::string FirstDifference(const std::vector<std::string>& lines,
                            const std::vector<std::string>& twin_lines) {
  for (size_t i = 0; i < std::max(lines.size(), twin_lines.size()); ++i) {
    const std::string line = i < lines.size() ? lines[i] : "nothing";
    const std::string twin_line = i < twin_lines.size() ? twin_lines[i] : "nothing";
    if (line != twin_line) return absl::StrCat(line, "\ninstead of\n", twin_line);
  }
  return "";
}

}  // namespace

std::unique_ptr<core::Core> CoreHistory::Replay() const {
  auto core = std::make_unique<core::Core>(options_);
  if (!core->Load(records_, loaded_).ok()) return nullptr;
  for (const Step& step : steps_) core->Step(step.event, step.now, step.more);
  return core;
}

std::string FindDifference(const core::Core& core, const core::Effects& effects,
                           const core::Core& twin, const core::Effects& twin_effects, Time now) {
  const std::string difference = FirstDifference(Describe(effects), Describe(twin_effects));
  return difference.empty() ? FirstDifference(Describe(core, now), Describe(twin, now))
                            : difference;
}

}  // namespace muster::simulation
