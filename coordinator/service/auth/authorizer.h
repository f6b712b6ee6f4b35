// Decides which callers may call which methods.
#ifndef MUSTER_COORDINATOR_SERVICE_AUTH_AUTHORIZER_H_
#define MUSTER_COORDINATOR_SERVICE_AUTH_AUTHORIZER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/security/certificate.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "coordinator/core/actor.h"
#include "coordinator/service/auth/access.h"

namespace muster::service {

struct AccessOptions {
  // When false, every caller may call every method. For in-process tests only.
  bool require_token = true;
  // A token with role admin; none when empty.
  std::string local_token;
  // Path of a file with further tokens, one ROLE TOKEN [NAME] per line; none when empty.
  std::string tokens_file;
  // Whether a call needs a client certificate, unless its method is open to anyone.
  bool require_certificate = false;
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
    std::optional<security::CertificateInfo> certificate;  // that TLS has verified
    bool browser = false;                                  // which needs no certificate

    // The node's certificate, if that is what the caller has presented.
    std::optional<security::NodeCertificate> node() const {
      return certificate.has_value() ? NodeOf(*certificate) : std::nullopt;
    }
  };

  // Errors: FAILED_PRECONDITION for a client without a common protocol version, UNAUTHENTICATED
  // without a valid token or with a certificate that has expired, PERMISSION_DENIED when the
  // token's role may not call the method (or it has no rule), and when a certificate is revoked or
  // missing. Reloads the tokens file when it has changed and then stayed the same for a quarter of
  // a second; if the reload fails, the previous tokens stay valid.
  absl::Status Check(absl::string_view method, const Caller& caller);
  // The part of Check whose result changes by time alone.
  absl::Status CheckNotExpired(const Caller& caller) const;
  // Reloads the tokens file as Check does. Returns a number that changes whenever Check may refuse
  // a call that it has allowed, apart from CheckNotExpired.
  uint64_t Refresh();

  // The user and role of a token or, for a call without one, of a node's certificate. The user is
  // the token's NAME; `token-` and eight digits of its digest if it has none; `local` for the local
  // token; the node's name.
  struct Identity {
    std::string user;
    Role role = v1::Access::ADMIN;
  };
  // Errors: UNAUTHENTICATED without a valid token, PERMISSION_DENIED for a revoked certificate.
  absl::StatusOr<Identity> Authenticate(const Caller& caller);
  // Refuses callers with this certificate from now on.
  void RevokeCertificate(const std::string& serial);
  // The user of a call that Check allowed. Errors: UNAUTHENTICATED if its token has been removed
  // since.
  absl::StatusOr<core::Actor> Identify(const Caller& caller);

 private:
  struct Entry {
    std::string digest;  // digest of the token
    Identity identity;
  };
  // Identifies a version of the tokens file.
  struct Stamp {
    int64_t changed_ns = 0;
    uint64_t inode = 0;
    bool operator==(const Stamp&) const = default;
  };

  Authorizer(AccessOptions options, std::function<Time()> clock)
      : options_(std::move(options)), clock_(std::move(clock)) {}

  absl::StatusOr<Identity> Find(const Caller& caller) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoadIfChanged() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Stamp ReadStamp() const;

  const AccessOptions options_;
  const std::function<Time()> clock_;
  absl::Mutex mutex_;
  std::vector<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::string> revoked_ ABSL_GUARDED_BY(mutex_);  // serial numbers
  Stamp stamp_ ABSL_GUARDED_BY(mutex_);                               // of the tokens in use
  Stamp seen_ ABSL_GUARDED_BY(mutex_);                                // of the last look
  SteadyTime next_reload_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 1;  // see Refresh
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_AUTH_AUTHORIZER_H_
