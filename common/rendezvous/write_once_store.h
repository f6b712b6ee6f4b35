// The key-value store through which the ranks of a generation exchange addresses and unique ids.
#ifndef MUSTER_COMMON_RENDEZVOUS_WRITE_ONCE_STORE_H_
#define MUSTER_COMMON_RENDEZVOUS_WRITE_ONCE_STORE_H_

#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

// A map whose entries can be written only once; common/limits.h limits its size. Not thread-safe;
// uses no threads, clocks or I/O.
class WriteOnceStore {
 public:
  // INVALID_ARGUMENT unless the key has 1 to limits::kKeyBytes bytes.
  static absl::Status CheckKey(absl::string_view key);

  // Returns true for a new key, false if the key already holds this value. Errors: ALREADY_EXISTS
  // (the key holds another value), INVALID_ARGUMENT (as CheckKey, or a value longer than
  // limits::kValueBytes), RESOURCE_EXHAUSTED (the store is full).
  absl::StatusOr<bool> Put(absl::string_view key, absl::string_view value);

  // Returns null if the key does not exist. The pointer is valid until the key is erased.
  const std::string* Find(absl::string_view key) const;

  // Removes a key, e.g. one that the coordinator rejected. Only for keys that no rank has read.
  void Erase(absl::string_view key);

  const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
  size_t value_bytes_ = 0;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RENDEZVOUS_WRITE_ONCE_STORE_H_
