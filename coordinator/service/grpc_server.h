// The listening gRPC server: credentials, bounds, keepalive, health and reflection.
#ifndef MUSTER_COORDINATOR_SERVICE_GRPC_SERVER_H_
#define MUSTER_COORDINATOR_SERVICE_GRPC_SERVER_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/http/address.h"
#include "common/security/tls.h"
#include "coordinator/service/authorizer.h"

namespace grpc {
class Server;
class Service;
namespace experimental {
class ServerInterceptorFactoryInterface;
}
}  // namespace grpc

namespace muster::service {

// A callback service and its full name in the proto.
struct Served {
  const char* name;
  grpc::Service* service;
};

class GrpcServer {
 public:
  // With a certificate in `tls` it serves TLS, with a CA there it wants a certificate of each
  // client that this CA has signed. The files are looked at again every ten seconds. Every call of
  // `services` has to pass `authorizer`; health and reflection are open. Services and authorizer
  // outlive the server. Errors: those of CheckTlsFiles, INVALID_ARGUMENT for a malformed address,
  // ALREADY_EXISTS for one in use, or what the system says.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(
      const std::string& address, const std::vector<Served>& services, Authorizer& authorizer,
      const security::TlsFiles& tls,
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> interceptor);
  ~GrpcServer();

  // Takes no more calls, waits for those under way, and cancels what is left after `patience`.
  // Idempotent.
  void Shutdown(std::chrono::milliseconds patience);

  // With the port that was chosen.
  const Address& address() const { return address_; }

 private:
  GrpcServer() = default;
  Address address_;
  std::vector<std::unique_ptr<grpc::Service>> guarded_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_GRPC_SERVER_H_
