#include "common/network/acceptor.h"

#include <glog/logging.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/time/time.h"
#include "common/time/now.h"
#include "common/time/time.h"

namespace muster {
namespace {

constexpr int kSecondsBetweenLogLines = 5;
constexpr int kRetryMs = 100;
constexpr int kTickMs = 5;

}  // namespace

Acceptor::Acceptor(std::vector<int> sockets)
    : sockets_(std::move(sockets)), stop_(eventfd(0, EFD_CLOEXEC)) {}

Acceptor::~Acceptor() {
  Stop();
  close(stop_);
}

void Acceptor::Start(std::function<void(int socket, int connection)> on_connection,
                     std::function<bool()> on_tick) {
  on_connection_ = std::move(on_connection);
  on_tick_ = std::move(on_tick);
  thread_ = std::thread([this] { Run(); });
}

void Acceptor::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(stop_, &one, sizeof(one));
    thread_.join();
  }
  for (const int socket : std::exchange(sockets_, {})) close(socket);
}

void Acceptor::Run() {
  std::vector<pollfd> polled = {{stop_, POLLIN, 0}};
  for (const int socket : sockets_) polled.push_back({socket, POLLIN, 0});
  bool tick = false;
  SteadyTime next_tick;
  while (true) {
    const int ready = poll(polled.data(), polled.size(), tick ? kTickMs : -1);
    if (ready < 0) continue;  // EINTR
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) Accept(polled[i].fd);
    }
    tick = true;
    if (SteadyNow() < next_tick) continue;
    tick = on_tick_();
    next_tick = SteadyNow() + absl::Milliseconds(kTickMs);
  }
}

void Acceptor::Accept(int socket) {
  const int fd = accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) return on_connection_(socket, fd);
  if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
  LOG_EVERY_T(WARNING, kSecondsBetweenLogLines)
      << "cannot accept a connection: " << std::strerror(errno) << "; trying again";
  pollfd stop = {stop_, POLLIN, 0};
  poll(&stop, 1, kRetryMs);
}

}  // namespace muster
