#include "worker/shim/rank/worker_sockets.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "worker/shim/protocol.h"

namespace muster::shim {
namespace {

constexpr size_t kMaxConnections = 8;
constexpr size_t kMaxCommandBytes = kMaxNoteBytes + 64;

OwnedFd ListenOn(const char* path) {
  OwnedFd listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (listener.get() < 0) return listener;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
  unlink(path);
  const mode_t mask = umask(0177);
  const bool ok =
      bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      listen(listener.get(), 4) == 0;
  umask(mask);
  return ok ? std::move(listener) : OwnedFd();
}

void SendTo(const OwnedFd& socket, std::string_view line) {
  if (!line.empty()) send(socket.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

WorkerSockets::WorkerSockets(int control_fd, Events events) : events_(std::move(events)) {
  if (control_fd >= 0) connections_.push_back({OwnedFd(control_fd), ""});
}

bool WorkerSockets::Open() {
  listener_ = ListenOn(kSocketFile);
  if (listener_.get() < 0 || !events_.watch(listener_.get())) return false;
  for (const Connection& connection : connections_) {
    const int fd = connection.socket.get();
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    if (!events_.watch(fd)) return false;
  }
  return true;
}

void WorkerSockets::OnReadable(int fd) {
  if (fd == listener_.get()) return Accept();
  const auto connection = std::find_if(connections_.begin(), connections_.end(),
                                       [fd](const Connection& c) { return c.socket.get() == fd; });
  if (connection != connections_.end()) ReadCommands(connection);
}

void WorkerSockets::ReadAll() {
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto connection = next++;
    while (ReadCommands(connection)) {
    }
  }
}

void WorkerSockets::Broadcast(std::string_view line) const {
  for (const Connection& connection : connections_) SendTo(connection.socket, line);
}

void WorkerSockets::Accept() {
  OwnedFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0 || connections_.size() >= kMaxConnections || !events_.watch(socket.get())) {
    return;
  }
  connections_.push_back({std::move(socket), ""});
  SendTo(connections_.back().socket, events_.on_connected());
}

bool WorkerSockets::ReadCommands(std::list<Connection>::iterator connection) {
  char buffer[512];
  const ssize_t n = read(connection->socket.get(), buffer, sizeof(buffer));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    Disconnect(connection);
    return false;
  }
  connection->input.append(buffer, static_cast<size_t>(n));
  size_t newline = 0;
  while ((newline = connection->input.find('\n')) != std::string::npos) {
    const std::string command = connection->input.substr(0, newline);
    connection->input.erase(0, newline + 1);
    SendTo(connection->socket, events_.on_command(command));
  }
  if (connection->input.size() <= kMaxCommandBytes) return true;
  Disconnect(connection);
  return false;
}

void WorkerSockets::Disconnect(std::list<Connection>::iterator connection) {
  connections_.erase(connection);
  events_.on_disconnected();
}

}  // namespace muster::shim
