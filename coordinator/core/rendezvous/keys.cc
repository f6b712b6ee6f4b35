#include "coordinator/core/rendezvous/keys.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "common/status.h"

namespace muster::core {
namespace {

absl::Status CheckKey(absl::string_view key) {
  if (key.empty()) return absl::InvalidArgumentError("a key must not be empty");
  if (key.size() > limits::kKeyBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a key has at most ", limits::kKeyBytes, " bytes, this one ", key.size()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<NodeName>> KeyTable::Put(absl::string_view key,
                                                    absl::string_view value) {
  RETURN_IF_ERROR(CheckKey(key));
  if (value.size() > limits::kValueBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("a value has at most ", limits::kValueBytes,
                                                     " bytes, that of ", key, " ", value.size()));
  }
  const auto existing = values_.find(std::string(key));
  if (existing != values_.end()) {
    if (existing->second == value) return std::vector<NodeName>();
    return absl::AlreadyExistsError(absl::StrCat("key ", key, " holds another value"));
  }
  if (values_.size() >= limits::kKeysPerGeneration) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a generation has at most ", limits::kKeysPerGeneration, " keys"));
  }
  if (value_bytes_ + value.size() > limits::kValueBytesPerGeneration) {
    return absl::ResourceExhaustedError(absl::StrCat("the values of a generation have at most ",
                                                     limits::kValueBytesPerGeneration, " bytes"));
  }
  values_.emplace(key, value);
  value_bytes_ += value.size();
  std::vector<NodeName> waiting;
  const auto waiters = waiters_.find(std::string(key));
  if (waiters != waiters_.end()) {
    waiting.assign(waiters->second.begin(), waiters->second.end());
    waiters_.erase(waiters);
  }
  return waiting;
}

absl::StatusOr<const std::string*> KeyTable::Get(absl::string_view key, const NodeName& node) {
  RETURN_IF_ERROR(CheckKey(key));
  const auto existing = values_.find(std::string(key));
  if (existing != values_.end()) return &existing->second;
  const auto waiters = waiters_.find(std::string(key));
  if (waiters == waiters_.end() && waiters_.size() >= limits::kKeysPerGeneration) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a generation waits for at most ", limits::kKeysPerGeneration, " keys at a time"));
  }
  waiters_[std::string(key)].insert(node);
  return nullptr;
}

}  // namespace muster::core
