#include "coordinator/store/memory_store.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace muster::store {

MemoryStore::MemoryStore(size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

absl::Status MemoryStore::Commit(absl::Span<const Mutation> batch) {
  absl::MutexLock lock(&mutex_);
  std::map<absl::string_view, const Mutation*> last;
  for (const Mutation& mutation : batch) last[mutation.key] = &mutation;

  size_t bytes = bytes_;
  for (const auto& [key, mutation] : last) {
    const auto it = records_.find(mutation->key);
    if (it != records_.end()) bytes -= it->first.size() + it->second.size();
    if (mutation->value.has_value()) bytes += mutation->key.size() + mutation->value->size();
  }
  if (bytes > capacity_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the memory store is full; the limit is ", capacity_bytes_, " bytes"));
  }
  for (const auto& [key, mutation] : last) {
    if (mutation->value.has_value()) {
      records_.insert_or_assign(mutation->key, *mutation->value);
    } else {
      records_.erase(mutation->key);
    }
  }
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Record>> MemoryStore::Scan(absl::string_view prefix) const {
  absl::MutexLock lock(&mutex_);
  std::vector<Record> found;
  for (auto it = records_.lower_bound(std::string(prefix));
       it != records_.end() && absl::StartsWith(it->first, prefix); ++it) {
    found.push_back({it->first, it->second});
  }
  return found;
}

}  // namespace muster::store
