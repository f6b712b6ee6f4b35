// The complete coordinator: core, event loop, gRPC services and HTTP endpoints over one store.
#ifndef MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
#define MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/address.h"
#include "common/security/tls.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/service/auth/authorizer.h"
#include "coordinator/store/store.h"

namespace muster::service {

// Logs the error and ends the process.
[[noreturn]] void EndOnCommitFailure(const absl::Status& status);

struct CoordinatorOptions {
  std::string listen = "127.0.0.1:7070";  // gRPC, HOST:PORT; port 0 selects a free port
  std::string http = "127.0.0.1:7071";
  std::string files_dir;   // directory for files of jobs; empty: a temporary one
  std::string audit_log;   // path; empty: none
  std::string machine_id;  // of this machine
  AccessOptions access;
  security::TlsFiles tls;
  // Key of the authority whose certificate is tls.ca; with it, the coordinator gives nodes their
  // identities and renews its own certificate. None if empty.
  std::string ca_key;
  std::string first_join_token;  // see first_join_token.h; none if empty
  absl::Duration certificate_validity = absl::Hours(24 * 90);  // of nodes
  core::Options core;         // an incarnation of 0 is replaced by a random one
  std::string notify_socket;  // systemd's socket; none when empty
  absl::Duration watchdog_interval = absl::InfiniteDuration();
  std::function<Time()> clock = Now;
  std::function<void(const absl::Status&)> on_commit_failure = EndOnCommitFailure;
};

class Coordinator {
 public:
  // Recovers from the store, then listens; the coordinator is serving when this returns. `store`
  // must outlive it. Errors: ALREADY_EXISTS for an address in use and INVALID_ARGUMENT for a
  // malformed one, both with the address; DATA_LOSS and FAILED_PRECONDITION from the store and
  // core::Core::Load.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options,
                                                            store::Store& store);
  // Ends all streams with UNAVAILABLE, answers the calls in progress, commits, and stops.
  ~Coordinator();

  const Address& grpc_address() const;
  const Address& http_address() const;

  // Numbers of open watches, log transfers, and execs and copies. Thread-safe.
  size_t watcher_count() const;
  size_t log_transfer_count() const;
  size_t transfer_count() const;
  // Makes the coordinator read the clock again; for manual clocks in tests. Thread-safe.
  void Wake();

 private:
  class Impl;
  explicit Coordinator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
