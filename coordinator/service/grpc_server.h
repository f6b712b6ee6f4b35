// The gRPC server: credentials, limits, keepalive, health and reflection.
#ifndef MUSTER_COORDINATOR_SERVICE_GRPC_SERVER_H_
#define MUSTER_COORDINATOR_SERVICE_GRPC_SERVER_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grpc/listener.h"
#include "common/http/address.h"
#include "common/security/server_credentials.h"
#include "common/security/tls.h"
#include "coordinator/service/auth/authorizer.h"
#include "coordinator/service/auth/live_calls.h"

namespace grpc {
class Server;
class Service;
}  // namespace grpc

namespace muster::service {

// A callback service and its full name in the proto file.
struct Served {
  const char* name;
  grpc::Service* service;
};

class GrpcServer {
 public:
  // Starts the server. A certificate in `tls` enables TLS; a CA in it makes the server verify
  // client certificates, as `clients` says. The files are checked for changes every ten seconds.
  // `authorizer` checks every call of `services`; health and reflection are open. `services`,
  // `authorizer` and `live_calls` must outlive the server. Errors: those of CheckTlsFiles,
  // INVALID_ARGUMENT for a malformed address, ALREADY_EXISTS for one in use, or the system's error.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const std::string& address, const std::vector<Served>& services, Authorizer& authorizer,
      LiveCalls& live_calls, const security::TlsFiles& tls, security::ClientCertificates clients,
      GrpcListener::Interceptors interceptors);
  ~GrpcServer();

  // Accepts no more calls, waits for those in progress, and cancels those that are left after
  // `patience`. Idempotent.
  void Shutdown(std::chrono::milliseconds patience);

  // The listening address, with the actual port.
  const Address& address() const { return address_; }

 private:
  GrpcServer() = default;
  Address address_;
  std::vector<std::unique_ptr<grpc::Service>> guarded_;
  std::unique_ptr<GrpcListener> listener_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_GRPC_SERVER_H_
