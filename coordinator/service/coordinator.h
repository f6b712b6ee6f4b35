// The coordinator as a whole: core, loop, gRPC services and HTTP endpoints over one store.
#ifndef MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
#define MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/address.h"
#include "common/now.h"
#include "common/security/tls.h"
#include "common/time.h"
#include "coordinator/core/core.h"
#include "coordinator/service/authorizer.h"
#include "coordinator/store/store.h"

namespace muster::service {

// Logs one line and ends the process.
[[noreturn]] void EndOnCommitFailure(const absl::Status& status);

struct CoordinatorOptions {
  std::string listen = "127.0.0.1:7070";  // gRPC, HOST:PORT; port 0 takes a free one
  std::string http = "127.0.0.1:7071";
  AccessOptions access;
  security::TlsFiles tls;
  core::Options core;         // an incarnation of 0 is drawn at random
  std::string notify_socket;  // systemd's; empty: none
  absl::Duration watchdog_interval = absl::InfiniteDuration();
  std::function<Time()> clock = Now;
  std::function<void(const absl::Status&)> on_commit_failure = EndOnCommitFailure;
};

class Coordinator {
 public:
  // Recovers from the store, then listens. Serves when it returns. `store` outlives it.
  // Errors: ALREADY_EXISTS for an address in use and INVALID_ARGUMENT for a malformed one, both
  // with the address; DATA_LOSS and FAILED_PRECONDITION from the store and core::Core::Load.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(const CoordinatorOptions& options,
                                                            store::Store& store);
  // Ends every stream with UNAVAILABLE, answers the calls under way, commits, stops.
  ~Coordinator();

  const Address& grpc_address() const;
  const Address& http_address() const;

  // What clients have open. Thread-safe.
  size_t watcher_count() const;
  size_t log_transfer_count() const;
  // Looks at the clock again: for clocks moved by hand. Thread-safe.
  void Wake();

 private:
  class Impl;
  explicit Coordinator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_COORDINATOR_H_
