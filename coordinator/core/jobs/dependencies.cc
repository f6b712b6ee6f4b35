#include "coordinator/core/jobs/dependencies.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"

namespace muster::core {
namespace {

// The most dependencies that a message lists.
constexpr size_t kListed = 5;

// Returns whether `ids` had the id.
bool Erase(const std::string& id, std::vector<std::string>& ids) {
  const auto end = std::remove(ids.begin(), ids.end(), id);
  const bool found = end != ids.end();
  ids.erase(end, ids.end());
  return found;
}

void ForEachTarget(const After& after, const std::function<void(const std::string&)>& visit) {
  for (const std::vector<std::string>* ids : {&after.ok, &after.failed, &after.any}) {
    for (const std::string& id : *ids) visit(id);
  }
}

}  // namespace

std::string Settle(const Ended& ended, After& after) {
  const bool known = ended.state != v1::JOB_STATE_UNSPECIFIED;
  const std::string how =
      known ? absl::StrCat(" ended as ", v1::JobState_Name(ended.state)) : " is no longer known";
  std::string problem;
  Erase(ended.id, after.any);
  if (Erase(ended.id, after.ok) && ended.state != v1::SUCCEEDED) {
    problem = absl::StrCat("after.ok: ", ended.id, how);
  }
  if (Erase(ended.id, after.failed) && (!known || ended.state == v1::SUCCEEDED)) {
    problem = absl::StrCat("after.failed: ", ended.id, how);
  }
  return problem;
}

std::string DependencyText(const After& after) {
  std::string text = "waits";
  size_t listed = 0;
  const auto list = [&](const std::vector<std::string>& ids, const char* end) {
    for (const std::string& id : ids) {
      if (++listed > kListed) continue;
      absl::StrAppend(&text, listed == 1 ? " for " : ", for ", id, " to ", end);
    }
  };
  list(after.ok, "succeed");
  list(after.failed, "fail");
  list(after.any, "end");
  if (listed > kListed) absl::StrAppend(&text, ", and for ", listed - kListed, " more");
  return text;
}

void Dependents::Add(const Job& job) {
  ForEachTarget(job.after, [&](const std::string& id) { waiting_[id].insert(job.id()); });
}

void Dependents::Remove(const Job& job) {
  ForEachTarget(job.after, [&](const std::string& id) {
    const auto entry = waiting_.find(id);
    if (entry == waiting_.end()) return;
    entry->second.erase(job.id());
    if (entry->second.empty()) waiting_.erase(entry);
  });
}

std::vector<JobId> Dependents::Take(const std::string& id) {
  const auto entry = waiting_.find(id);
  if (entry == waiting_.end()) return {};
  std::vector<JobId> jobs(entry->second.begin(), entry->second.end());
  waiting_.erase(entry);
  return jobs;
}

std::vector<std::string> Dependents::Targets() const {
  std::vector<std::string> ids;
  for (const auto& [id, jobs] : waiting_) ids.push_back(id);
  return ids;
}

}  // namespace muster::core
