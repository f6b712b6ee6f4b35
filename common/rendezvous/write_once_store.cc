#include "common/rendezvous/write_once_store.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace muster {

absl::Status WriteOnceStore::CheckKey(absl::string_view key) {
  if (!key.empty() && key.size() <= limits::kKeyBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("key is ", key.size(), " bytes long; it must have 1 to ", limits::kKeyBytes));
}

absl::StatusOr<bool> WriteOnceStore::Put(absl::string_view key, absl::string_view value) {
  RETURN_IF_ERROR(CheckKey(key));
  if (value.size() > limits::kValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat("value of key ", key, " is ", value.size(),
                                                   " bytes long; the limit is ",
                                                   limits::kValueBytes));
  }
  if (const std::string* const present = Find(key); present != nullptr) {
    if (*present == value) return false;
    return absl::AlreadyExistsError(absl::StrCat("key ", key, " holds another value"));
  }
  if (values_.size() >= limits::kKeysPerGeneration ||
      value_bytes_ + value.size() > limits::kValueBytesPerGeneration) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the key store is full; the limits are ", limits::kKeysPerGeneration,
                     " keys and ", limits::kValueBytesPerGeneration, " bytes of values"));
  }
  values_.emplace(key, value);
  value_bytes_ += value.size();
  return true;
}

const std::string* WriteOnceStore::Find(absl::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void WriteOnceStore::Erase(absl::string_view key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return;
  value_bytes_ -= found->second.size();
  values_.erase(found);
}

}  // namespace muster
