// Accepts the connections of a gRPC server.
#ifndef MUSTER_COMMON_GRPC_LISTENER_H_
#define MUSTER_COMMON_GRPC_LISTENER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/http/address.h"
#include "common/network/acceptor.h"
#include "common/network/admission.h"
#include "grpcpp/support/server_interceptor.h"

namespace grpc {
class ServerBuilder;
class ServerContextBase;
class ServerCredentials;
namespace experimental {
class ExternalConnectionAcceptor;
}
}  // namespace grpc

namespace muster {

// Replaces ServerBuilder::AddListeningPort, whose listener (gRPC 1.51) permanently stops accepting
// once the process has run out of file descriptors. This one continues when descriptors are free
// again. It bounds what clients can use before they authenticate (Admission), except on a unix
// socket: gRPC 1.51 has no limit on streams that are reset.
class GrpcListener {
 public:
  // Errors: INVALID_ARGUMENT for an unknown host, ALREADY_EXISTS for an address in use, or the
  // system's error.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Open(const Address& address);
  // Listens on a unix socket that only this user can connect to, and replaces an existing one.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> OpenUnix(const std::string& path);
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  // The listening port; 0 for a unix socket.
  uint16_t port() const { return port_; }
  // Closes a connection whose peer does not acknowledge sent data for this long. Before Start.
  void SetUserTimeout(std::chrono::milliseconds timeout);
  using Interceptors =
      std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>;
  // Gives the connections to the server that `builder` builds, and sets its interceptors.
  void AddTo(grpc::ServerBuilder& builder, std::shared_ptr<grpc::ServerCredentials> credentials,
             Interceptors interceptors = {});
  // Must be called for each call whose caller has authenticated: the connection of a caller that
  // has not is closed after some seconds. Thread-safe.
  void OnAuthenticated(const grpc::ServerContextBase& call);
  // Whether the caller's address is in the log as one that exceeds its budget. Thread-safe.
  bool WasLogged(const grpc::ServerContextBase& call);
  // Starts to accept. Called after the server was started.
  void Start();
  // Stops accepting and closes the sockets. Called before the server is shut down. Idempotent.
  void Stop();

 private:
  GrpcListener(std::vector<int> sockets, uint16_t port);

  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server_;
  // Shared with the server's interceptors.
  const std::shared_ptr<Admission> admission_;
  Acceptor acceptor_;  // ends before the server's acceptor does
  const uint16_t port_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_GRPC_LISTENER_H_
