#include "worker/c10d_store/key_store.h"

#include <charconv>
#include <utility>

namespace muster::c10d_store {

const KeyStore::Entry* KeyStore::Find(std::string_view key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

bool KeyStore::Exists(std::string_view key) const {
  return entries_.find(key) != entries_.end() || QueueLength(key) > 0;
}

bool KeyStore::Reserve(size_t removed, size_t added) {
  if (bytes_ - removed + added > kMaxStoreBytes) return false;
  bytes_ = bytes_ - removed + added;
  return true;
}

bool KeyStore::Set(const std::string& key, std::string value, ConnectionId writer) {
  const Entry* const before = Find(key);
  const size_t removed = before == nullptr ? 0 : key.size() + before->value.size();
  if (!Reserve(removed, key.size() + value.size())) return false;
  Entry& entry = entries_[key];
  entry.value = std::move(value);
  entry.writers.insert(writer);
  return true;
}

bool KeyStore::Append(const std::string& key, std::string_view value, ConnectionId writer) {
  const bool is_new = Find(key) == nullptr;
  if (!Reserve(0, value.size() + (is_new ? key.size() : 0))) return false;
  Entry& entry = entries_[key];
  entry.value.append(value);
  entry.writers.insert(writer);
  return true;
}

std::optional<int64_t> KeyStore::Add(const std::string& key, int64_t amount, ConnectionId writer) {
  int64_t number = 0;
  const Entry* const before = Find(key);
  if (before != nullptr) {
    const std::string& text = before->value;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  }
  // Without the undefined behaviour of an overflow.
  number = static_cast<int64_t>(static_cast<uint64_t>(number) + static_cast<uint64_t>(amount));
  const size_t removed = before == nullptr ? 0 : key.size() + before->value.size();
  std::string text = std::to_string(number);
  if (!Reserve(removed, key.size() + text.size())) return std::nullopt;
  Entry& entry = entries_[key];
  entry.value = std::move(text);
  if (amount != 0) entry.writers.insert(writer);
  return number;
}

bool KeyStore::Delete(std::string_view key) {
  const auto it = entries_.find(key);
  if (it == entries_.end()) return false;
  bytes_ -= it->first.size() + it->second.value.size();
  entries_.erase(it);
  return true;
}

bool KeyStore::Push(const std::string& key, std::string value) {
  if (!Reserve(0, key.size() + value.size())) return false;
  queues_[key].push_back(std::move(value));
  return true;
}

std::optional<std::string> KeyStore::Pop(std::string_view key) {
  const auto it = queues_.find(key);
  if (it == queues_.end()) return std::nullopt;
  std::string value = std::move(it->second.front());
  it->second.pop_front();
  bytes_ -= key.size() + value.size();
  if (it->second.empty()) queues_.erase(it);
  return value;
}

size_t KeyStore::QueueLength(std::string_view key) const {
  const auto it = queues_.find(key);
  return it == queues_.end() ? 0 : it->second.size();
}

}  // namespace muster::c10d_store
