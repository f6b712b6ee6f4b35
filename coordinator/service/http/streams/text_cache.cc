#include "coordinator/service/http/streams/text_cache.h"

#include <utility>

namespace muster::service {
namespace {

// Texts that no page has asked for are dropped after this time.
constexpr absl::Duration kKept = absl::Seconds(30);

}  // namespace

std::shared_ptr<TextCache::Entry> TextCache::Find(const std::string& key) {
  const SteadyTime now = clock_().steady;
  absl::MutexLock lock(&mutex_);
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry = entry->first != key && now - entry->second->last_use > kKept ? entries_.erase(entry)
                                                                         : std::next(entry);
  }
  std::shared_ptr<Entry>& entry = entries_[key];
  if (entry == nullptr) entry = std::make_shared<Entry>();
  entry->last_use = now;
  return entry;
}

absl::StatusOr<TextCache::Text> TextCache::Get(
    const std::string& key, absl::Duration max_age,
    const std::function<absl::StatusOr<std::string>()>& render) {
  const std::shared_ptr<Entry> entry = Find(key);
  absl::MutexLock lock(&entry->mutex);
  if (clock_().steady < entry->fresh_until) return entry->text;
  absl::StatusOr<std::string> text = render();
  entry->fresh_until = clock_().steady + max_age;
  if (!text.ok()) {
    entry->text = text.status();
  } else if (!entry->text.ok() || *entry->text == nullptr || **entry->text != *text) {
    entry->text = std::make_shared<const std::string>(*std::move(text));
  }
  return entry->text;
}

}  // namespace muster::service
