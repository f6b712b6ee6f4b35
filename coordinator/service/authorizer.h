// Who may call what.
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

namespace muster::service {

// Each of view, submit and admin may do what those before it may; worker is a node's, and admin may
// act as one.
enum class Role { kView, kSubmit, kAdmin, kWorker };

absl::string_view RoleName(Role role);

struct AccessOptions {
  // Off, whoever reaches the port may do everything: for tests in one process.
  bool require_token = true;
  // Of role admin; empty: none.
  std::string local_token;
  // More tokens, a line each: ROLE TOKEN [NAME]. Empty: none.
  std::string tokens_file;
};

// Decides by the method's name and what the call carries. Thread-safe.
class Authorizer {
 public:
  // Errors, for a tokens file: those of security::ReadPrivateFile, and INVALID_ARGUMENT with the
  // line's number.
  static absl::StatusOr<std::unique_ptr<Authorizer>> Create(AccessOptions options,
                                                            std::function<Time()> clock = Now);

  struct Caller {
    std::optional<std::string> token;  // as it came, "Bearer …"
    std::string protocol_version;      // empty: not said
    std::string software_version;
  };

  // FAILED_PRECONDITION for a client of another protocol version, UNAUTHENTICATED without a valid
  // token, PERMISSION_DENIED when its role may not call the method, which nobody may while
  // RoleFor knows none. The tokens file is read again when it has changed, looked at once a
  // second at most; while what it then says is wrong, the tokens of before count.
  absl::Status Check(absl::string_view method, const Caller& caller);

  // What "/package.Service/Method" needs; none for a method that is not in the table.
  static std::optional<Role> RoleFor(absl::string_view method);

 private:
  struct Entry {
    std::string digest;  // of the token
    Role role;
    std::string name;
  };
  struct Stamp {
    int64_t changed_ns = 0;
    uint64_t inode = 0;
    bool operator==(const Stamp&) const = default;
  };

  Authorizer(AccessOptions options, std::function<Time()> clock)
      : options_(std::move(options)), clock_(std::move(clock)) {}

  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoadIfChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Stamp Look() const;

  const AccessOptions options_;
  const std::function<Time()> clock_;
  absl::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  Stamp stamp_ ABSL_GUARDED_BY(mutex_);
  SteadyTime next_look_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTHORIZER_H_
