#include "common/grpc_listener.h"

#include <glog/logging.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
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

constexpr int kSecondsBetweenLogLines = 5;
constexpr int kRetryMs = 100;

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
    : sockets_(std::move(sockets)), port_(port), stop_(eventfd(0, EFD_CLOEXEC)) {}

GrpcListener::~GrpcListener() {
  Stop();
  close(stop_);
}

void GrpcListener::SetUserTimeout(std::chrono::milliseconds timeout) {
  const auto ms = static_cast<unsigned>(timeout.count());  // accepted connections inherit it
  for (const int socket : sockets_) {
    setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
  }
}

void GrpcListener::AddTo(grpc::ServerBuilder& builder,
                         std::shared_ptr<grpc::ServerCredentials> credentials) {
  server_ = builder.experimental().AddExternalConnectionAcceptor(
      Builder::ExternalConnectionType::FROM_FD, std::move(credentials));
}

void GrpcListener::Start() {
  thread_ = std::thread([this] { Run(); });
}

void GrpcListener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(stop_, &one, sizeof(one));
    thread_.join();
  }
  for (const int socket : std::exchange(sockets_, {})) close(socket);
}

void GrpcListener::Run() {
  std::vector<pollfd> polled = {{stop_, POLLIN, 0}};
  for (const int socket : sockets_) polled.push_back({socket, POLLIN, 0});
  while (true) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) Accept(polled[i].fd);
    }
  }
}

void GrpcListener::Accept(int socket) {
  const int fd = accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = socket;
    connection.fd = fd;
    server_->HandleNewConnection(&connection);
    return;
  }
  if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
  LOG_EVERY_T(WARNING, kSecondsBetweenLogLines)
      << "cannot accept a connection: " << std::strerror(errno) << "; trying again";
  pollfd stop = {stop_, POLLIN, 0};
  poll(&stop, 1, kRetryMs);
}

}  // namespace muster
