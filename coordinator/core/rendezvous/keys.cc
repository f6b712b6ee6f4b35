#include "coordinator/core/rendezvous/keys.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace muster::core {

absl::StatusOr<std::vector<NodeName>> KeyTable::Put(absl::string_view key,
                                                    absl::string_view value) {
  RETURN_IF_ERROR(values_.Put(key, value).status());
  const auto waiters = waiters_.find(key);
  if (waiters == waiters_.end()) return std::vector<NodeName>();
  std::vector<NodeName> waiting(waiters->second.begin(), waiters->second.end());
  waiters_.erase(waiters);
  return waiting;
}

absl::StatusOr<const std::string*> KeyTable::Get(absl::string_view key, const NodeName& node) {
  RETURN_IF_ERROR(WriteOnceStore::CheckKey(key));
  if (const std::string* const value = values_.Find(key); value != nullptr) return value;
  const auto waiters = waiters_.find(key);
  if (waiters != waiters_.end()) {
    waiters->second.insert(node);
  } else if (waiters_.size() < limits::kKeysPerGeneration) {
    waiters_.emplace(key, std::set<NodeName>{node});
  } else {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too many awaited keys; the limit is ", limits::kKeysPerGeneration, " per generation"));
  }
  return nullptr;
}

}  // namespace muster::core
