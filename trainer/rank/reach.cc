#include "trainer/rank/reach.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "glog/logging.h"

namespace muster::rank {
namespace {

// Interval between checks for cancellation, and resolution of reported times.
constexpr absl::Duration kSlice = absl::Milliseconds(100);

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

absl::StatusOr<SocketAddress> Resolve(const std::string& host, uint16_t port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat(host, ": ", gai_strerror(error)));
  SocketAddress address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

uint16_t PortOf(int socket) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// A connection attempt to one target, complete when its token has been received.
class Attempt {
 public:
  Attempt(const ReachTarget& target, size_t number) : target_(target), number_(number) {}
  ~Attempt() {
    if (socket_ >= 0) close(socket_);
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  absl::Status Start() {
    ASSIGN_OR_RETURN(const SocketAddress address,
                     Resolve(target_.address.host, target_.address.port));
    socket_ = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket_ < 0) return Failure(errno);
    if (connect(socket_, address.get(), address.size) != 0 && errno != EINPROGRESS) {
      return Failure(errno);
    }
    return absl::OkStatus();
  }

  // Handles a socket event. Returns true when the token has been received.
  absl::StatusOr<bool> Proceed() {
    if (!connected_) {
      int error = 0;
      socklen_t size = sizeof(error);
      getsockopt(socket_, SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) return Failure(error);
      connected_ = true;
    }
    char buffer[256];
    const ssize_t bytes = recv(socket_, buffer, sizeof(buffer), 0);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (bytes < 0) return Failure(errno);
    received_.append(buffer, static_cast<size_t>(bytes));
    if (received_ == target_.word) return true;
    // Wrong or truncated token.
    if (bytes == 0 || !absl::StartsWith(target_.word, received_)) {
      return absl::UnavailableError("unexpected reply; the address is in use by another program");
    }
    return false;
  }

  absl::Status TimedOut(absl::Duration timeout) const {
    return absl::UnavailableError(
        absl::StrCat(connected_ ? "connected, but no reply within " : "connection timed out after ",
                     absl::FormatDuration(absl::Trunc(timeout, kSlice))));
  }
  pollfd Poller() const { return {socket_, static_cast<short>(connected_ ? POLLIN : POLLOUT), 0}; }
  size_t number() const { return number_; }

 private:
  static absl::Status Failure(int error) { return absl::UnavailableError(std::strerror(error)); }

  const ReachTarget& target_;
  const size_t number_;
  int socket_ = -1;
  bool connected_ = false;
  std::string received_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ReachListener>> ReachListener::Start(const std::string& host,
                                                                    std::string word) {
  ASSIGN_OR_RETURN(SocketAddress address, Resolve(host, 0));
  const int family = address.storage.ss_family;
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return ErrnoStatus(errno, "socket");
  absl::Cleanup close_it = [fd] { close(fd); };
  int bound = bind(fd, address.get(), address.size);
  if (bound != 0 && errno == EADDRNOTAVAIL) {
    address.storage = {};
    address.storage.ss_family = static_cast<sa_family_t>(family);
    bound = bind(fd, address.get(), address.size);
  }
  if (bound != 0 || listen(fd, SOMAXCONN) != 0) {
    return ErrnoStatus(errno, absl::StrCat("listen on ", host));
  }
  const int stop = eventfd(0, EFD_CLOEXEC);
  if (stop < 0) return ErrnoStatus(errno, "eventfd");
  std::move(close_it).Cancel();
  return std::unique_ptr<ReachListener>(new ReachListener(fd, stop, PortOf(fd), std::move(word)));
}

ReachListener::ReachListener(int socket, int stop, uint16_t port, std::string word)
    : socket_(socket), stop_(stop), port_(port), word_(std::move(word)), thread_([this] {
        Answer();
      }) {}

ReachListener::~ReachListener() {
  eventfd_write(stop_, 1);
  thread_.join();
  close(stop_);
  close(socket_);
}

void ReachListener::Answer() {
  pollfd pollers[] = {{socket_, POLLIN, 0}, {stop_, POLLIN, 0}};
  while (pollers[1].revents == 0) {
    if (poll(pollers, 2, -1) < 0 && errno != EINTR) return;
    if (pollers[0].revents == 0) continue;
    const int peer = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer >= 0) {
      send(peer, word_.data(), word_.size(), MSG_NOSIGNAL);
      close(peer);
    } else if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) {
      // Clients that connect from now on will report that they received no reply.
      PLOG(WARNING) << "accept on port " << port_;
      return;
    }
  }
}

ReachResult ReachAll(const std::vector<ReachTarget>& targets, const ReachOptions& options) {
  const Deadline deadline(options.timeout);
  std::list<Attempt> under_way;
  size_t next = 0;
  while (next < targets.size() || !under_way.empty()) {
    while (next < targets.size() && under_way.size() < options.at_once) {
      Attempt& attempt = under_way.emplace_back(targets[next], next);
      const absl::Status started = attempt.Start();
      if (!started.ok()) return {started, next};
      ++next;
    }
    std::vector<pollfd> pollers;
    for (const Attempt& attempt : under_way) pollers.push_back(attempt.Poller());
    const absl::Duration left = deadline.left();
    if (left == absl::ZeroDuration()) {
      return {under_way.front().TimedOut(options.timeout), under_way.front().number()};
    }
    if (options.cancelled != nullptr && options.cancelled()) {
      return {absl::CancelledError("cancelled"), under_way.front().number()};
    }
    // Rounded up to avoid spinning during the last millisecond.
    poll(pollers.data(), pollers.size(),
         static_cast<int>(absl::ToInt64Milliseconds(std::min(left, kSlice))) + 1);
    auto attempt = under_way.begin();
    for (const pollfd& poller : pollers) {
      const auto current = attempt++;
      if (poller.revents == 0) continue;
      const absl::StatusOr<bool> done = current->Proceed();
      if (!done.ok()) return {done.status(), current->number()};
      if (*done) under_way.erase(current);
    }
  }
  return {};
}

}  // namespace muster::rank
