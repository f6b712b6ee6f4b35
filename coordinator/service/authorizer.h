// Decides which callers may call which methods.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTHORIZER_H_
#define MUSTER_COORDINATOR_SERVICE_AUTHORIZER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/now.h"
#include "common/time.h"
#include "coordinator/core/actor.h"

namespace muster::service {

// view, submit and admin each include the rights of the roles before them. worker is the role of a
// node's worker; admin includes it as well.
enum class Role { kView, kSubmit, kAdmin, kWorker };

absl::string_view RoleName(Role role);

struct AccessOptions {
  // When false, every caller may call every method. For in-process tests only.
  bool require_token = true;
  // A token with role admin; none when empty.
  std::string local_token;
  // Path of a file with further tokens, one ROLE TOKEN [NAME] per line; none when empty.
  std::string tokens_file;
};

// Checks a call by its method name and metadata. Thread-safe.
class Authorizer {
 public:
  // Reads the tokens file. Errors: those of security::ReadPrivateFile; INVALID_ARGUMENT, with the
  // line number, for a malformed line.
  static absl::StatusOr<std::unique_ptr<Authorizer>> Create(AccessOptions options,
                                                            std::function<Time()> clock = Now);

  struct Caller {
    std::optional<std::string> token;  // the metadata value as sent: "Bearer TOKEN"
    std::string protocol_version;      // the client's oldest; empty when it did not send it
    std::string newest_protocol_version;
    std::string software_version;
  };

  // Errors: FAILED_PRECONDITION for a client without a common protocol version, UNAUTHENTICATED
  // without a valid token, PERMISSION_DENIED when the token's role may not call the method (or
  // RoleFor knows no role for it). Reloads the tokens file when it has changed, which is checked at
  // most once a second; if the reload fails, the previous tokens stay valid.
  absl::Status Check(absl::string_view method, const Caller& caller);

  // The user of a call that Check allowed: the NAME of its token; `token-` and eight digits of the
  // token's digest if it has none; `local` for the local token. Errors: UNAUTHENTICATED if the
  // token has been removed since.
  absl::StatusOr<core::Actor> Identify(const Caller& caller);

  // The role that "/package.Service/Method" requires; nullopt for a method that is not in the
  // table.
  static std::optional<Role> RoleFor(absl::string_view method);

 private:
  struct Entry {
    std::string digest;  // digest of the token
    Role role;
    std::string user;
  };
  // Identifies a version of the tokens file.
  struct Stamp {
    int64_t changed_ns = 0;
    uint64_t inode = 0;
    bool operator==(const Stamp&) const = default;
  };

  Authorizer(AccessOptions options, std::function<Time()> clock)
      : options_(std::move(options)), clock_(std::move(clock)) {}

  absl::StatusOr<const Entry*> Find(const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoadIfChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Stamp ReadStamp() const;

  const AccessOptions options_;
  const std::function<Time()> clock_;
  absl::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  Stamp stamp_ ABSL_GUARDED_BY(mutex_);
  SteadyTime next_reload_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTHORIZER_H_
