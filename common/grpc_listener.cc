#include "common/grpc_listener.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster {
namespace {

using Builder = grpc::ServerBuilder::experimental_type;

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Open(const Address& address) {
  ASSIGN_OR_RETURN(ListeningSockets listening, Listen(address));
  for (const int socket : listening.sockets) {
    const int on = 1;  // accepted connections inherit it
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  return absl::WrapUnique(new GrpcListener(std::move(listening.sockets), listening.port));
}

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::OpenUnix(const std::string& path) {
  const std::string what = absl::StrCat("listen on ", path);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ErrnoStatus(ENAMETOOLONG, what);
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoStatus(errno, what);
  unlink(path.c_str());
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(fd, SOMAXCONN) != 0) {
    const int error = errno;
    close(fd);
    return ErrnoStatus(error, what);
  }
  return absl::WrapUnique(new GrpcListener({fd}, 0));
}

GrpcListener::GrpcListener(std::vector<int> sockets, uint16_t port)
    : acceptor_(std::move(sockets)), port_(port) {}

void GrpcListener::SetUserTimeout(std::chrono::milliseconds timeout) {
  const auto ms = static_cast<unsigned>(timeout.count());  // accepted connections inherit it
  for (const int socket : acceptor_.sockets()) {
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
  }
}

void GrpcListener::AddTo(grpc::ServerBuilder& builder,
                         std::shared_ptr<grpc::ServerCredentials> credentials) {
  server_ = builder.experimental().AddExternalConnectionAcceptor(
      Builder::ExternalConnectionType::FROM_FD, std::move(credentials));
}

void GrpcListener::Start() {
  acceptor_.Start([this](int socket, int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = socket;
    connection.fd = fd;
    server_->HandleNewConnection(&connection);
  });
}

void GrpcListener::Stop() { acceptor_.Stop(); }

}  // namespace muster
