#include "coordinator/service/http/login/page_logins.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random_id.h"
#include "common/sha256.h"

namespace muster::service {
namespace {

constexpr size_t kSecretBits = 256;
constexpr absl::Duration kFailureInterval = absl::Seconds(10);
constexpr int kFailures = 10;
// Addresses whose failures are remembered; beyond them, those that end first are forgotten.
constexpr size_t kAddresses = 4096;

}  // namespace

std::string CallerSecrets::Add(const std::string& user, Authorizer::Caller caller) {
  std::string secret = RandomHexId(kSecretBits);
  const SteadyTime now = clock_().steady;
  absl::MutexLock lock(&mutex_);
  std::erase_if(entries_, [now](const auto& entry) { return entry.second.end <= now; });
  size_t count = 0;
  auto oldest = entries_.end();
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (at->second.user != user) continue;
    ++count;
    if (oldest == entries_.end() || at->second.end < oldest->second.end) oldest = at;
  }
  if (count >= per_user_) entries_.erase(oldest);
  entries_[Sha256Hex(secret)] = {user, std::move(caller), now + validity_};
  return secret;
}

std::optional<Authorizer::Caller> CallerSecrets::Find(absl::string_view secret) {
  const SteadyTime now = clock_().steady;
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(Sha256Hex(secret));
  if (found == entries_.end() || found->second.end <= now) return std::nullopt;
  return found->second.caller;
}

std::optional<Authorizer::Caller> CallerSecrets::Take(absl::string_view secret) {
  const SteadyTime now = clock_().steady;
  absl::MutexLock lock(&mutex_);
  const auto taken = entries_.extract(Sha256Hex(secret));
  if (taken.empty() || taken.mapped().end <= now) return std::nullopt;
  return taken.mapped().caller;
}

absl::Status FailedSignIns::Check(const std::string& address) {
  const SteadyTime now = clock_().steady;
  absl::MutexLock lock(&mutex_);
  const auto found = forgotten_.find(address);
  if (found == forgotten_.end()) return absl::OkStatus();
  const absl::Duration wait = found->second - now - kFailures * kFailureInterval + kFailureInterval;
  if (wait <= absl::ZeroDuration()) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("too many failed sign-ins from ", address, "; try again in ",
                   absl::ToInt64Seconds(absl::Ceil(wait, absl::Seconds(1))), " s"));
}

void FailedSignIns::Add(const std::string& address) {
  const SteadyTime now = clock_().steady;
  absl::MutexLock lock(&mutex_);
  SteadyTime& end = forgotten_[address];
  end = std::max(end, now) + kFailureInterval;
  if (forgotten_.size() <= kAddresses) return;
  forgotten_.erase(std::min_element(forgotten_.begin(), forgotten_.end(),
                                    [](auto& a, auto& b) { return a.second < b.second; }));
}

absl::Status PageLogins::CheckReachable(absl::string_view peer) const {
  if (!IsLoopback(address.host) || IsLoopback(peer)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the status page listens on ", address.ToString(),
      " of the coordinator's machine only; "
      "start the coordinator with --http=0.0.0.0:",
      address.port,
      ", or forward the coordinator's "
      "port and this one with ssh -L and pass --coordinator=127.0.0.1 with the forwarded port"));
}

}  // namespace muster::service
