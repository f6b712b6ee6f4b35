#include "coordinator/service/authorizer.h"

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

constexpr absl::Duration kReloadInterval = absl::Seconds(1);
// Short, hand-picked tokens can be guessed.
constexpr size_t kMinTokenBytes = 16;
constexpr size_t kUserDigits = 8;

struct MethodRole {
  absl::string_view method;
  Role role;
};

// Every method of proto/muster/v1 that the coordinator serves.
constexpr MethodRole kMethodRoles[] = {
    {"/muster.v1.ClusterService/GetJob", Role::kView},
    {"/muster.v1.ClusterService/ListJobs", Role::kView},
    {"/muster.v1.ClusterService/WatchJob", Role::kView},
    {"/muster.v1.ClusterService/ListEvents", Role::kView},
    {"/muster.v1.ClusterService/GetJobHistory", Role::kView},
    {"/muster.v1.ClusterService/ReadLog", Role::kView},
    {"/muster.v1.ClusterService/ListNodes", Role::kView},
    {"/muster.v1.ClusterService/GetNode", Role::kView},
    {"/muster.v1.ClusterService/GetQueue", Role::kView},
    {"/muster.v1.ClusterService/GetArray", Role::kView},
    {"/muster.v1.ClusterService/GetReport", Role::kView},
    {"/muster.v1.ClusterService/GetVersion", Role::kView},
    {"/muster.v1.ClusterService/FindMissingFiles", Role::kSubmit},
    {"/muster.v1.ClusterService/UploadFile", Role::kSubmit},
    {"/muster.v1.ClusterService/Exec", Role::kSubmit},
    {"/muster.v1.ClusterService/ReadFiles", Role::kSubmit},
    {"/muster.v1.ClusterService/RemoveJob", Role::kSubmit},
    {"/muster.v1.ClusterService/SubmitJob", Role::kSubmit},
    {"/muster.v1.ClusterService/CancelJob", Role::kSubmit},
    {"/muster.v1.ClusterService/HoldJob", Role::kSubmit},
    {"/muster.v1.ClusterService/ReleaseJob", Role::kSubmit},
    {"/muster.v1.ClusterService/RequeueJob", Role::kSubmit},
    {"/muster.v1.ClusterService/CheckpointJob", Role::kSubmit},
    {"/muster.v1.ClusterService/CancelArray", Role::kSubmit},
    {"/muster.v1.ClusterService/SetSecret", Role::kSubmit},
    {"/muster.v1.ClusterService/ListSecrets", Role::kSubmit},
    {"/muster.v1.ClusterService/CordonNode", Role::kAdmin},
    {"/muster.v1.ClusterService/UncordonNode", Role::kAdmin},
    {"/muster.v1.ClusterService/DrainNode", Role::kAdmin},
    {"/muster.v1.ClusterService/RemoveNode", Role::kAdmin},
    {"/muster.v1.ClusterService/TestNode", Role::kAdmin},
    {"/muster.v1.ClusterService/RecoverJobs", Role::kAdmin},
    {"/muster.v1.WorkerService/Session", Role::kWorker},
    {"/muster.v1.WorkerService/SendLog", Role::kWorker},
    {"/muster.v1.WorkerService/ServeExec", Role::kWorker},
    {"/muster.v1.WorkerService/SendFiles", Role::kWorker},
    {"/muster.v1.WorkerService/FetchFile", Role::kWorker},
};

constexpr std::pair<absl::string_view, Role> kRoleNames[] = {{"view", Role::kView},
                                                             {"submit", Role::kSubmit},
                                                             {"admin", Role::kAdmin},
                                                             {"worker", Role::kWorker}};

bool Suffices(Role has, Role needed) {
  if (has == Role::kAdmin || has == needed) return true;
  return has == Role::kSubmit && needed == Role::kView;
}

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

absl::string_view RoleName(Role role) {
  for (const auto& [name, value] : kRoleNames) {
    if (value == role) return name;
  }
  return "";
}

std::optional<Role> Authorizer::RoleFor(absl::string_view method) {
  for (const MethodRole& entry : kMethodRoles) {
    if (entry.method == method) return entry.role;
  }
  return std::nullopt;
}

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
    entries.push_back({Sha256Hex(options_.local_token), Role::kAdmin, "local"});
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
    const auto role = absl::c_find_if(
        kRoleNames, [&words](const auto& known) { return known.first == words[0]; });
    if (role == std::end(kRoleNames)) {
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
    entries.push_back({digest, role->second, user});
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
  stamp_ = stamp;
  const absl::Status loaded = Load();
  if (loaded.ok()) {
    LOG(INFO) << "reloaded " << options_.tokens_file << ": " << entries_.size() << " tokens";
  } else {
    LOG(ERROR) << "reload failed; keeping the previous tokens: " << loaded.message();
  }
}

absl::StatusOr<const Authorizer::Entry*> Authorizer::Find(const Caller& caller) {
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
  return found;
}

absl::StatusOr<core::Actor> Authorizer::Identify(const Caller& caller) {
  if (!options_.require_token) return core::Actor{"", /*is_admin=*/true};
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const Entry* const found, Find(caller));
  return core::Actor{found->user, found->role == Role::kAdmin};
}

absl::Status Authorizer::Check(absl::string_view method, const Caller& caller) {
  RETURN_IF_ERROR(CheckVersion(caller));
  if (!options_.require_token) return absl::OkStatus();
  absl::MutexLock lock(&mutex_);
  ASSIGN_OR_RETURN(const Entry* const found, Find(caller));
  const std::optional<Role> needed = RoleFor(method);
  if (!needed.has_value()) {
    return absl::PermissionDeniedError(absl::StrCat("no role may call ", method));
  }
  if (!Suffices(found->role, *needed)) {
    return absl::PermissionDeniedError(
        absl::StrCat(method.substr(method.rfind('/') + 1), " requires role ", RoleName(*needed),
                     ", but token '", found->user, "' has role ", RoleName(found->role)));
  }
  return absl::OkStatus();
}

}  // namespace muster::service
