#include "coordinator/core/rendezvous/keys.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace muster::core {
namespace {

// Overhead of an entry of a map or set.
constexpr size_t kEntryBytes = 128;

}  // namespace

size_t KeyTable::MostBytes(absl::string_view key, absl::string_view value) {
  return 2 * kEntryBytes + key.size() + value.size();
}

void KeyTable::Add(size_t bytes) {
  memory_.Add(owner_, bytes);
  bytes_ += bytes;
}

absl::StatusOr<std::vector<NodeName>> KeyTable::Put(absl::string_view key,
                                                    absl::string_view value) {
  const size_t bytes = kEntryBytes + key.size() + value.size();
  if (values_.Find(key) == nullptr) RETURN_IF_ERROR(memory_.Check(owner_, bytes));
  ASSIGN_OR_RETURN(const bool is_new, values_.Put(key, value));
  if (is_new) Add(bytes);
  const auto waiters = waiters_.find(key);
  if (waiters == waiters_.end()) return std::vector<NodeName>();
  std::vector<NodeName> waiting(waiters->second.begin(), waiters->second.end());
  const size_t returned = kEntryBytes * (1 + waiting.size()) + key.size();
  memory_.Remove(owner_, returned);
  bytes_ -= returned;
  waiters_.erase(waiters);
  return waiting;
}

absl::StatusOr<const std::string*> KeyTable::Get(absl::string_view key, const NodeName& node) {
  RETURN_IF_ERROR(WriteOnceStore::CheckKey(key));
  if (const std::string* const value = values_.Find(key); value != nullptr) return value;
  const auto waiters = waiters_.find(key);
  if (waiters != waiters_.end() && waiters->second.count(node) != 0) return nullptr;
  const bool is_new = waiters == waiters_.end();
  if (is_new && waiters_.size() >= limits::kKeysPerGeneration) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too many awaited keys; the limit is ", limits::kKeysPerGeneration, " per generation"));
  }
  const size_t bytes = is_new ? 2 * kEntryBytes + key.size() : kEntryBytes;
  RETURN_IF_ERROR(memory_.Check(owner_, bytes));
  Add(bytes);
  waiters_[std::string(key)].insert(node);
  return nullptr;
}

}  // namespace muster::core
