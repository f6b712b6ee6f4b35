#include "coordinator/core/jobs/job_names.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status.h"

namespace muster::core {
namespace {

// The most jobs that the error for an ambiguous name lists.
constexpr size_t kListedMatches = 5;

// Splits "sweep-3" into the name of an array and the index of a task; nullopt for other names.
std::optional<std::pair<std::string, uint32_t>> SplitTaskName(const std::string& given) {
  const size_t dash = given.rfind('-');
  uint32_t index = 0;
  if (dash == std::string::npos || !absl::SimpleAtoi(given.substr(dash + 1), &index)) {
    return std::nullopt;
  }
  return std::make_pair(given.substr(0, dash), index);
}

// Names the newest of the jobs and arrays that `given` matches.
absl::Status Ambiguous(absl::string_view given, std::vector<JobNames::Match> matches) {
  std::sort(matches.begin(), matches.end(),
            [](const auto& a, const auto& b) { return a.queue_sequence > b.queue_sequence; });
  const size_t listed = std::min(matches.size(), kListedMatches);
  std::vector<std::string> ids;
  for (size_t i = 0; i < listed; ++i) ids.push_back(matches[i].id);
  if (matches.size() > listed) ids.push_back(absl::StrCat(matches.size() - listed, " more"));
  return absl::InvalidArgumentError(absl::StrCat("job ", given, " is ambiguous: it matches ",
                                                 absl::StrJoin(ids, ", "),
                                                 "; give more of the id"));
}

}  // namespace

std::vector<JobNames::Match> JobNames::MatchesOf(const std::string& given) const {
  const Arrays& arrays = jobs_.arrays();
  if (jobs_.Find(JobId(given)) != nullptr) return {{given, false, 0}};
  const JobArray* const exact = arrays.Find(given);
  if (exact != nullptr) return {{given, true, exact->queue_sequence}};
  std::vector<Match> named, begun;
  std::set<std::string> seen;  // arrays, which many jobs may belong to
  // Ids begin with their job's name.
  for (auto entry = jobs_.all().lower_bound(JobId(given));
       entry != jobs_.all().end() && absl::StartsWith(entry->first.value(), given); ++entry) {
    const Job& job = entry->second;
    const std::string& array = job.status.array_id();
    if (!array.empty() && !seen.insert(array).second) continue;
    Match match{array.empty() ? entry->first.value() : array, !array.empty(), job.queue_sequence};
    if (job.spec().name() == given) named.push_back(match);
    begun.push_back(std::move(match));
  }
  if (!named.empty()) return named;
  const auto task = SplitTaskName(given);
  if (!task.has_value()) return begun;
  const auto& [name, index] = *task;
  for (auto entry = arrays.all().lower_bound(name);
       entry != arrays.all().end() && absl::StartsWith(entry->first, name); ++entry) {
    const JobArray& array = entry->second;
    if (array.name != name || array.tasks.count(index) == 0) continue;
    named.push_back({TaskId(array.id, index).value(), false, array.queue_sequence});
  }
  return named.empty() ? begun : named;
}

absl::StatusOr<JobNames::Match> JobNames::ResolveAny(absl::string_view name) const {
  const std::string given(name);
  if (given.empty()) return absl::NotFoundError("job id is empty");
  std::vector<Match> matches = MatchesOf(given);
  if (matches.size() == 1) return matches.front();
  if (!matches.empty()) return Ambiguous(given, std::move(matches));
  return absl::NotFoundError(absl::StrCat("no job ", given, " (the coordinator keeps at most ",
                                          options_.keep_jobs,
                                          " finished jobs, within its --job-memory)"));
}

absl::StatusOr<JobId> JobNames::Resolve(absl::string_view name) const {
  ASSIGN_OR_RETURN(const Match match, ResolveAny(name));
  if (!match.is_array) return JobId(match.id);
  const JobArray& array = *jobs_.arrays().Find(match.id);
  return absl::InvalidArgumentError(absl::StrCat(
      name, " is an array of ", array.count, array.count == 1 ? " task" : " tasks",
      "; name one of its tasks, as in ", TaskId(array.id, *array.tasks.begin()).value()));
}

absl::StatusOr<std::string> JobNames::ResolveArray(absl::string_view name) const {
  const std::string given(name);
  if (const Job* const job = jobs_.Find(JobId(given))) {
    const std::string& array = job->status.array_id();
    return absl::InvalidArgumentError(
        array.empty() ? absl::StrCat(given, " is a job and not an array of jobs")
                      : absl::StrCat(given, " is a task of array ", array, "; name the array"));
  }
  std::vector<Match> matches = given.empty() ? std::vector<Match>() : MatchesOf(given);
  std::erase_if(matches, [](const Match& match) { return !match.is_array; });
  if (matches.size() == 1) return matches.front().id;
  if (!matches.empty()) return Ambiguous(given, std::move(matches));
  return absl::NotFoundError(absl::StrCat("no array of jobs ", given));
}

absl::StatusOr<After> JobNames::ResolveDependencies(const v1::Dependencies& given,
                                                    std::vector<Ended>& ended) const {
  const auto resolve = [&](absl::string_view path, const auto& names,
                           std::vector<std::string>& ids) -> absl::Status {
    for (const std::string& name : names) {
      const absl::StatusOr<Match> match = ResolveAny(name);
      if (!match.ok()) {
        return absl::Status(match.status().code(),
                            absl::StrCat(path, ": ", match.status().message()));
      }
      if (std::find(ids.begin(), ids.end(), match->id) != ids.end()) continue;
      ids.push_back(match->id);
      const v1::JobState state = jobs_.StateOf(match->id);
      if (IsTerminal(state)) ended.push_back({match->id, state});
    }
    return absl::OkStatus();
  };
  After after;
  RETURN_IF_ERROR(resolve("after.ok", given.ok(), after.ok));
  RETURN_IF_ERROR(resolve("after.failed", given.failed(), after.failed));
  RETURN_IF_ERROR(resolve("after.any", given.any(), after.any));
  return after;
}

const JobId* JobNames::FindKey(const OwnerAndKey& key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &found->second;
}

}  // namespace muster::core
