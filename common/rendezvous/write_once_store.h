// The keys by which the ranks of one generation exchange addresses and unique ids.
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

// A map whose entries are written once, bounded by common/limits.h. Not thread-safe; without
// threads, clocks or I/O of its own.
class WriteOnceStore {
 public:
  // INVALID_ARGUMENT unless the key has 1 to limits::kKeyBytes bytes.
  static absl::Status CheckKey(absl::string_view key);

  // True for a new key, false for a repetition with the same value. ALREADY_EXISTS: the key holds
  // another value; INVALID_ARGUMENT: as CheckKey, or a value of more than limits::kValueBytes;
  // RESOURCE_EXHAUSTED: the store is full.
  absl::StatusOr<bool> Put(absl::string_view key, absl::string_view value);

  // Null when the key does not exist. Valid until the key is erased.
  const std::string* Find(absl::string_view key) const;

  // Removes a value that its reader refused. For proposals only: ranks rely on the rest.
  void Erase(absl::string_view key);

  const std::map<std::string, std::string, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, std::string, std::less<>> values_;
  size_t value_bytes_ = 0;
};

}  // namespace muster

#endif  // MUSTER_COMMON_RENDEZVOUS_WRITE_ONCE_STORE_H_
