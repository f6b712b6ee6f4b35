#include "coordinator/core/nodes/conflict.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace muster::core {
namespace {

bool HasLiveRanks(const v1::GenerationReport& report) {
  return std::any_of(report.ranks().begin(), report.ranks().end(),
                     [](const v1::RankReport& rank) { return rank.phase() != v1::EXITED; });
}

// Why the store cannot be the one from which the worker has seen its commit, but is an older copy
// of it; empty if there is no such reason.
std::string RestoredConflict(const v1::Hello& hello, const StoreIdentity& store) {
  const std::string& start = hello.coordinator_start();
  // Workers of earlier builds do not report it.
  const uint64_t last = start.empty() ? store.commit_index : store.LastCommitOf(start);
  if (hello.commit_index() <= last) return "";
  const std::string seen = absl::StrCat("it has seen commit ", hello.commit_index());
  const std::string restored = ": the store was restored from a copy";
  if (start.empty()) {
    return absl::StrCat(seen, ", but this coordinator's store is at commit ", last, restored);
  }
  return absl::StrCat(seen, " of coordinator start ", start,
                      ", of which this coordinator's store has ",
                      last == 0 ? "none" : absl::StrCat("the commits up to ", last), restored);
}

}  // namespace

std::string ConflictOf(const v1::Hello& hello, const StoreIdentity& store,
                       const std::function<bool(const std::string& job)>& is_known) {
  const auto& held = hello.inventory();
  if (std::none_of(held.begin(), held.end(), HasLiveRanks)) return "";
  if (hello.cluster_id().empty()) {
    const auto unknown = std::find_if(held.begin(), held.end(), [&](const auto& report) {
      return HasLiveRanks(report) && !is_known(report.job_id());
    });
    if (unknown == held.end()) return "";
    return absl::StrCat("it runs job ", unknown->job_id(),
                        ", which this coordinator's store does not have");
  }
  if (hello.cluster_id() != store.cluster_id) {
    return absl::StrCat("its ranks belong to cluster ", hello.cluster_id(),
                        ", but this coordinator's cluster is ", store.cluster_id);
  }
  return RestoredConflict(hello, store);
}

}  // namespace muster::core
