#include "common/process/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/files/owned_fd.h"
#include "common/status.h"

namespace muster {

std::string NotifySocket() {
  const char* socket_path = std::getenv("NOTIFY_SOCKET");
  return socket_path == nullptr ? "" : socket_path;
}

absl::Duration WatchdogInterval() {
  const char* text = std::getenv("WATCHDOG_USEC");
  int64_t microseconds = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &microseconds) || microseconds <= 0) {
    return absl::InfiniteDuration();
  }
  const char* pid = std::getenv("WATCHDOG_PID");
  if (pid != nullptr && pid != absl::StrCat(getpid())) return absl::InfiniteDuration();
  return absl::Microseconds(microseconds) / 2;
}

absl::Status NotifySystemd(absl::string_view socket_path, absl::string_view state) {
  if (socket_path.empty()) return absl::OkStatus();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("NOTIFY_SOCKET is too long: ", socket_path));
  }
  memcpy(address.sun_path, socket_path.data(), socket_path.size());
  // '@' denotes an abstract socket name, whose first byte is zero.
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const socklen_t size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_path.size());
  const OwnedFd notifier(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (notifier.get() < 0) return ErrnoStatus(errno, "socket");
  const ssize_t sent =
      sendto(notifier.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
             reinterpret_cast<const sockaddr*>(&address), size);
  if (sent != static_cast<ssize_t>(state.size())) {
    return ErrnoStatus(errno, absl::StrCat("notify systemd at ", socket_path));
  }
  return absl::OkStatus();
}

}  // namespace muster
