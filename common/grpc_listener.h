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

namespace grpc {
class ServerBuilder;
class ServerCredentials;
namespace experimental {
class ExternalConnectionAcceptor;
}
}  // namespace grpc

namespace muster {

// Replaces ServerBuilder::AddListeningPort, whose listener (gRPC 1.51) permanently stops accepting
// once the process has run out of file descriptors. This one continues when descriptors are free
// again.
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
  // Gives the connections to the server that `builder` builds.
  void AddTo(grpc::ServerBuilder& builder, std::shared_ptr<grpc::ServerCredentials> credentials);
  // Starts to accept. Called after the server was started.
  void Start();
  // Stops accepting and closes the sockets. Called before the server is shut down. Idempotent.
  void Stop();

 private:
  GrpcListener(std::vector<int> sockets, uint16_t port);

  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> server_;
  Acceptor acceptor_;  // ends before the server's acceptor does
  const uint16_t port_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_GRPC_LISTENER_H_
