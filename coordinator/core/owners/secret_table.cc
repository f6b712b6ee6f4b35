#include "coordinator/core/owners/secret_table.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/limits.h"
#include "common/secret_name.h"
#include "common/status.h"
#include "coordinator/core/records.h"

namespace muster::core {

void SecretTable::Handle(const SetSecret& event) {
  const absl::Status status = Set(event);
  if (status.ok()) {
    context_.effects.replies.push_back({event.request, v1::Job()});
  } else {
    context_.effects.replies.push_back({event.request, status});
  }
}

absl::Status SecretTable::Set(const SetSecret& event) {
  RETURN_IF_ERROR(CheckSecretName(event.name));
  const std::pair<std::string, std::string> key(event.actor.name, event.name);
  if (event.value.empty()) {
    if (secrets_.erase(key) == 0) return absl::OkStatus();
    context_.effects.writes.push_back(DeleteSecret(event.actor.name, event.name));
    context_.Log(DoneBy(absl::StrCat("secret ", event.name, " was removed"), event.actor));
    return absl::OkStatus();
  }
  if (event.value.size() > limits::kSecretBytes) {
    return absl::InvalidArgumentError(absl::StrCat("secret ", event.name, " has ",
                                                   event.value.size(), " bytes; the limit is ",
                                                   limits::kSecretBytes));
  }
  if (event.value.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("secret ", event.name,
                     " contains a zero byte, which no environment variable can hold; encode the "
                     "value, for example as base64"));
  }
  if (secrets_.count(key) == 0) {
    const auto first = secrets_.lower_bound({event.actor.name, ""});
    const auto end = secrets_.lower_bound({event.actor.name + '\0', ""});
    if (static_cast<size_t>(std::distance(first, end)) >= limits::kSecretsPerOwner) {
      return absl::ResourceExhaustedError(
          absl::StrCat(event.actor.name.empty() ? "the caller" : event.actor.name, " has ",
                       limits::kSecretsPerOwner, " secrets, the limit; remove some"));
    }
  }
  RETURN_IF_ERROR(context_.space.Check(event.value.size()));
  context_.space.Take(event.value.size());
  secrets_[key] = event.value;
  v1::SecretRecord record;
  record.set_owner(event.actor.name);
  record.set_name(event.name);
  record.set_value(event.value);
  context_.effects.writes.push_back(Put(record));
  context_.Log(DoneBy(absl::StrCat("secret ", event.name, " was set"), event.actor));
  return absl::OkStatus();
}

v1::ListSecretsResponse SecretTable::List(const Actor& actor) const {
  v1::ListSecretsResponse response;
  for (const auto& [key, value] : secrets_) {
    if (!actor.is_admin && key.first != actor.name) continue;
    v1::ListSecretsResponse::Secret& secret = *response.add_secrets();
    secret.set_owner(key.first);
    secret.set_name(key.second);
  }
  return response;
}

void SecretTable::AddTo(const std::string& owner, const v1::JobSpec& spec,
                        v1::Launch& launch) const {
  for (const auto& [variable, name] : spec.secret_env()) {
    const auto secret = secrets_.find({owner, name});
    if (secret != secrets_.end()) (*launch.mutable_secrets())[name] = secret->second;
  }
}

void SecretTable::Restore(v1::SecretRecord record) {
  secrets_[{record.owner(), record.name()}] = std::move(*record.mutable_value());
}

}  // namespace muster::core
