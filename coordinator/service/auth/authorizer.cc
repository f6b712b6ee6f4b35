#include "coordinator/service/auth/authorizer.h"

#include <glog/logging.h>
#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/security/call_metadata.h"
#include "common/security/private_file.h"
#include "common/sha256.h"
#include "common/status.h"
#include "common/version.h"

namespace muster::service {
namespace {

constexpr absl::Duration kReloadInterval = absl::Milliseconds(250);
// Short, hand-picked tokens can be guessed.
constexpr size_t kMinTokenBytes = 16;
constexpr size_t kUserDigits = 8;

// Roles of tokens.
constexpr Role kRoles[] = {v1::Access::VIEW, v1::Access::SUBMIT, v1::Access::ADMIN,
                           v1::Access::WORKER};

// The user of a token without a NAME; the digest reveals nothing about the token.
std::string UnnamedUser(absl::string_view digest) {
  return absl::StrCat("token-", digest.substr(0, kUserDigits));
}

// Compares in a time that does not depend on where the two differ.
bool EqualDigests(absl::string_view a, absl::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

absl::Status CheckVersion(const Authorizer::Caller& caller) {
  if (caller.protocol_version.empty()) return absl::OkStatus();
  uint32_t oldest = 0;
  uint32_t newest = 0;
  const bool known = absl::SimpleAtoi(caller.protocol_version, &oldest) &&
                     (caller.newest_protocol_version.empty() ||
                      absl::SimpleAtoi(caller.newest_protocol_version, &newest));
  if (known && CommonProtocolVersion(oldest, newest) != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "client version ", absl::CHexEscape(caller.software_version.substr(0, 64)), " uses protocol ",
      absl::CHexEscape(caller.protocol_version.substr(0, 16)), ", but coordinator version ",
      kSoftwareVersion, " uses protocols ", kOldestProtocolVersion, " to ", kProtocolVersion,
      "; install version ", kSoftwareVersion, " on both sides"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Authorizer>> Authorizer::Create(AccessOptions options,
                                                               std::function<Time()> clock) {
  std::unique_ptr<Authorizer> authorizer(new Authorizer(std::move(options), std::move(clock)));
  absl::MutexLock lock(&authorizer->mutex_);
  authorizer->stamp_ = authorizer->ReadStamp();
  RETURN_IF_ERROR(authorizer->Load());
  return authorizer;
}

absl::Status Authorizer::Load() {
  std::vector<Entry> entries;
  if (!options_.local_token.empty()) {
    entries.push_back({Sha256Hex(options_.local_token), {"local", v1::Access::ADMIN}});
  }
  std::string text;
  if (!options_.tokens_file.empty()) {
    ASSIGN_OR_RETURN(text, security::ReadPrivateFile(options_.tokens_file));
  }
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    const auto wrong = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(options_.tokens_file, ":", number, ": ", why));
    };
    const auto* const role =
        absl::c_find_if(kRoles, [&words](Role known) { return RoleName(known) == words[0]; });
    if (role == std::end(kRoles)) {
      return wrong(absl::StrCat("'", absl::CHexEscape(words[0]),
                                "' is not a role; roles are view, submit, admin and worker"));
    }
    if (words.size() < 2 || words.size() > 3) return wrong("expected ROLE TOKEN [NAME]");
    if (words[1].size() < kMinTokenBytes) {
      return wrong(absl::StrCat("the token is shorter than ", kMinTokenBytes,
                                " characters; generate one with openssl rand -hex 32"));
    }
    const std::string digest = Sha256Hex(words[1]);
    const std::string user = words.size() == 3 ? words[2] : UnnamedUser(digest);
    entries.push_back({digest, {user, *role}});
  }
  entries_ = std::move(entries);
  return absl::OkStatus();
}

Authorizer::Stamp Authorizer::ReadStamp() const {
  struct stat info;
  if (options_.tokens_file.empty() || stat(options_.tokens_file.c_str(), &info) != 0) return {};
  return {info.st_ctim.tv_sec * 1'000'000'000 + info.st_ctim.tv_nsec, info.st_ino};
}

void Authorizer::LoadIfChanged() {
  const SteadyTime now = clock_().steady;
  if (options_.tokens_file.empty() || now < next_reload_) return;
  next_reload_ = now + kReloadInterval;
  const Stamp stamp = ReadStamp();
  if (stamp == stamp_) return;
  // The file may be half written: waits until it has not changed for an interval.
  if (std::exchange(seen_, stamp) != stamp) return;
  stamp_ = stamp;
  const absl::Status loaded = Load();
  if (loaded.ok()) {
    ++epoch_;
    LOG(INFO) << "reloaded " << options_.tokens_file << ": " << entries_.size() << " tokens";
  } else {
    LOG(ERROR) << "reload failed; keeping the previous tokens: " << loaded.message();
  }
}

absl::StatusOr<Authorizer::Identity> Authorizer::Find(const Caller& caller) {
  if (!caller.token.has_value()) {
    return absl::UnauthenticatedError("the call has no token, and this coordinator requires one");
  }
  absl::string_view token = *caller.token;
  if (!absl::ConsumePrefix(&token, security::kTokenPrefix)) {
    return absl::UnauthenticatedError(absl::StrCat("metadata ", security::kTokenKey,
                                                   " of the call is not of the form '",
                                                   security::kTokenPrefix, "TOKEN'"));
  }
  const std::string digest = Sha256Hex(token);
  LoadIfChanged();
  const Entry* found = nullptr;
  // Compares with every token, so that the time reveals nothing.
  for (const Entry& entry : entries_) {
    if (EqualDigests(entry.digest, digest)) found = &entry;
  }
  if (found == nullptr) {
    return absl::UnauthenticatedError("the token of the call is not valid for this coordinator");
  }
  return found->identity;
}

absl::StatusOr<Authorizer::Identity> Authorizer::Authenticate(const Caller& caller) {
  const std::optional<security::NodeCertificate> node = caller.node();
  if (node.has_value()) {
    absl::MutexLock lock(&mutex_);
    if (revoked_.contains(node->serial)) {
      return absl::PermissionDeniedError(
          absl::StrCat("certificate ", node->serial, " of node ", node->node, " was revoked"));
    }
    if (!caller.token.has_value()) return Identity{node->node, v1::Access::WORKER};
  }
  if (!options_.require_token) return Identity();
  absl::MutexLock lock(&mutex_);
  return Find(caller);
}

void Authorizer::RevokeCertificate(const std::string& serial) {
  absl::MutexLock lock(&mutex_);
  if (revoked_.insert(serial).second) ++epoch_;
}

uint64_t Authorizer::Refresh() {
  absl::MutexLock lock(&mutex_);
  LoadIfChanged();
  return epoch_;
}

absl::Status Authorizer::CheckNotExpired(const Caller& caller) const {
  if (!caller.certificate.has_value() || clock_().wall < caller.certificate->not_after) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(absl::StrCat(
      "the certificate of ", caller.certificate->common_name, " expired at ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", caller.certificate->not_after, absl::UTCTimeZone()),
      "; renew it with muster cert renew, and connect again"));
}

absl::StatusOr<core::Actor> Authorizer::Identify(const Caller& caller) {
  ASSIGN_OR_RETURN(Identity identity, Authenticate(caller));
  return core::Actor{std::move(identity.user), identity.role == v1::Access::ADMIN};
}

absl::Status Authorizer::Check(absl::string_view method, const Caller& caller) {
  RETURN_IF_ERROR(CheckVersion(caller));
  if (!options_.require_token) return absl::OkStatus();
  const MethodDescriptor* const found = FindMethod(method);
  const Role needed = found == nullptr ? v1::Access::NOBODY : AccessOf(*found).role();
  if (needed == v1::Access::ANYONE) return absl::OkStatus();
  if (options_.require_certificate && !caller.browser && !caller.certificate.has_value()) {
    return absl::PermissionDeniedError(
        "this coordinator requires a client certificate; pass one signed by its CA with --tls-cert "
        "and --tls-key");
  }
  RETURN_IF_ERROR(CheckNotExpired(caller));
  ASSIGN_OR_RETURN(const Identity identity, Authenticate(caller));
  if (needed == v1::Access::NOBODY) {
    return absl::PermissionDeniedError(absl::StrCat("no role may call ", method));
  }
  if (!Suffices(identity.role, needed)) {
    return absl::PermissionDeniedError(
        absl::StrCat(method.substr(method.rfind('/') + 1), " requires role ", RoleName(needed),
                     ", but token '", identity.user, "' has role ", RoleName(identity.role)));
  }
  return absl::OkStatus();
}

}  // namespace muster::service
