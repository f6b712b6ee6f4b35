// Sign-ins to the status page: codes of `muster page`, sessions of browsers, and a limit on failed
// attempts. Nothing of it is stored: a restart of the coordinator ends all of them.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_LOGIN_PAGE_LOGINS_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_LOGIN_PAGE_LOGINS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/http/address.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "coordinator/service/auth/authorizer.h"

namespace muster::service {

// Secrets of 256 random bits, each of which stands for a caller until it expires. Whoever uses one
// checks the caller again, who may have lost its rights meanwhile. Thread-safe.
class CallerSecrets {
 public:
  // A user has at most `per_user` secrets; a further one replaces the oldest.
  CallerSecrets(absl::Duration validity, size_t per_user, std::function<Time()> clock)
      : validity_(validity), per_user_(per_user), clock_(std::move(clock)) {}

  // Returns a new secret.
  std::string Add(const std::string& user, Authorizer::Caller caller);
  // nullopt if the secret is unknown or has expired. Take also removes it.
  std::optional<Authorizer::Caller> Find(absl::string_view secret);
  std::optional<Authorizer::Caller> Take(absl::string_view secret);

  absl::Duration validity() const { return validity_; }

 private:
  struct Entry {
    std::string user;
    Authorizer::Caller caller;
    SteadyTime end;
  };

  const absl::Duration validity_;
  const size_t per_user_;
  const std::function<Time()> clock_;
  absl::Mutex mutex_;
  // By digest, so that the time of a search reveals nothing about the secrets.
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

// Keeps tokens from being guessed: an address may fail ten times at once, and then once in ten
// seconds. Thread-safe.
class FailedSignIns {
 public:
  explicit FailedSignIns(std::function<Time()> clock) : clock_(std::move(clock)) {}

  // RESOURCE_EXHAUSTED if the address has failed too often.
  absl::Status Check(const std::string& address);
  void Add(const std::string& address);

 private:
  const std::function<Time()> clock_;
  absl::Mutex mutex_;
  // When the failures of an address are forgotten; each adds to it.
  std::map<std::string, SteadyTime> forgotten_ ABSL_GUARDED_BY(mutex_);
};

// Thread-safe, except for `address` and `tls`, which are set before calls arrive.
struct PageLogins {
  explicit PageLogins(const std::function<Time()>& clock = Now)
      : codes(absl::Minutes(5), 4, clock), sessions(absl::Hours(12), 16, clock), failures(clock) {}

  // FAILED_PRECONDITION if the page is on loopback only, and the peer of a call is elsewhere.
  absl::Status CheckReachable(absl::string_view peer) const;

  CallerSecrets codes;
  CallerSecrets sessions;
  FailedSignIns failures;
  Address address;  // of the HTTP server
  bool tls = false;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_LOGIN_PAGE_LOGINS_H_
