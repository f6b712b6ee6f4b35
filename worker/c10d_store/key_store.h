// The keys, values and queues of a store, and which clients wrote them.
#ifndef MUSTER_WORKER_C10D_STORE_KEY_STORE_H_
#define MUSTER_WORKER_C10D_STORE_KEY_STORE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace muster::c10d_store {

// A client's connection; numbered from 0 and never reused.
using ConnectionId = uint32_t;

// Limit of all keys and values together.
inline constexpr size_t kMaxStoreBytes = 512 << 20;

// Not thread-safe; uses no clock or I/O. Writes beyond the limit are rejected: they return false or
// nothing.
class KeyStore {
 public:
  struct Entry {
    std::string value;
    // Clients that set the key, appended to it or added a number other than 0.
    std::set<ConnectionId> writers;
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  const Entries& entries() const { return entries_; }
  // Null if the key does not exist.
  const Entry* Find(std::string_view key) const;
  // Whether the key has a value or a queue that is not empty.
  bool Exists(std::string_view key) const;

  bool Set(const std::string& key, std::string value, ConnectionId writer);
  bool Append(const std::string& key, std::string_view value, ConnectionId writer);
  // The sum of the amount and the key's number, 0 if the key does not exist. Nothing also if the
  // value is not a number.
  std::optional<int64_t> Add(const std::string& key, int64_t amount, ConnectionId writer);
  // False if the key does not exist.
  bool Delete(std::string_view key);

  bool Push(const std::string& key, std::string value);
  // The first value of the queue; nothing if it is empty.
  std::optional<std::string> Pop(std::string_view key);
  size_t QueueLength(std::string_view key) const;

 private:
  // Counts `added` bytes in place of `removed`, unless the limit would be exceeded.
  bool Reserve(size_t removed, size_t added);

  Entries entries_;
  std::map<std::string, std::deque<std::string>, std::less<>> queues_;
  size_t bytes_ = 0;
};

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_KEY_STORE_H_
