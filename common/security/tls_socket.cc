#include "common/security/tls_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/security/openssl.h"

namespace muster::security {
namespace {

constexpr int kConnectTimeoutMs = 1000;
constexpr int kAnswerTimeoutSeconds = 2;

}  // namespace

OwnedFd ConnectForHandshake(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &first) != 0) {
    return {};
  }
  const std::unique_ptr<addrinfo, Free<freeaddrinfo>> owner(first);
  for (const addrinfo* info = first; info != nullptr; info = info->ai_next) {
    OwnedFd fd(socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() < 0) continue;
    if (connect(fd.get(), info->ai_addr, info->ai_addrlen) != 0) {
      pollfd wait = {fd.get(), POLLOUT, 0};
      int error = 0;
      socklen_t size = sizeof(error);
      if (errno != EINPROGRESS || poll(&wait, 1, kConnectTimeoutMs) != 1 ||
          getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        continue;
      }
    }
    const timeval timeout = {kAnswerTimeoutSeconds, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
    return fd;
  }
  return {};
}

}  // namespace muster::security
