#include "common/network/held_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster {
namespace {

// A socket bound to `port` on all IPv6 and IPv4 addresses, or on all IPv4 addresses if the machine
// has no IPv6; none, with errno set, on failure.
OwnedFd BindEverywhere(uint16_t port) {
  for (const int family : {AF_INET6, AF_INET}) {
    OwnedFd bound(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int fd = bound.get();
    if (fd < 0) continue;
    const int on = 1;
    const int off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in6 v6 = {};
    sockaddr_in v4 = {};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    const bool ok = family == AF_INET6
                        ? setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0 &&
                              bind(fd, reinterpret_cast<const sockaddr*>(&v6), sizeof(v6)) == 0
                        : bind(fd, reinterpret_cast<const sockaddr*>(&v4), sizeof(v4)) == 0;
    if (ok) return bound;
    if (errno == EADDRINUSE || errno == EACCES) return OwnedFd();
  }
  return OwnedFd();
}

}  // namespace

absl::StatusOr<std::unique_ptr<HeldPort>> HeldPort::Hold(uint16_t port) {
  OwnedFd socket = BindEverywhere(port);
  if (socket.get() < 0) {
    const int error = errno;
    const absl::Status status =
        ErrnoStatus(error, port == 0 ? std::string("bind a free port for MASTER_PORT")
                                     : absl::StrCat("bind port ", port, " for MASTER_PORT"));
    return error == EADDRINUSE ? absl::UnavailableError(status.message()) : status;
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  // sockaddr_in and sockaddr_in6 have the port at the same offset.
  const uint16_t chosen = ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  return std::unique_ptr<HeldPort>(new HeldPort(std::move(socket), chosen));
}

}  // namespace muster
