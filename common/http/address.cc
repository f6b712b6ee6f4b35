#include "common/http/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/http/port_owner.h"
#include "common/status.h"

namespace muster {

std::string Address::ToString() const {
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<Address> ParseAddress(absl::string_view text) {
  const auto malformed = [text](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not HOST:PORT: ", why));
  };
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return malformed("the port is missing");
  absl::string_view host = text.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]")) return malformed("unbalanced brackets");
  } else if (absl::StrContains(host, ':')) {
    return malformed("an IPv6 address needs brackets, as in [::1]:7070");
  }
  if (host.empty()) return malformed("the host is missing");
  uint32_t port = 0;
  const absl::string_view digits = text.substr(colon + 1);
  if (digits.empty() || !absl::ascii_isdigit(digits[0]) || !absl::SimpleAtoi(digits, &port) ||
      port > 65535) {
    return malformed("the port is not a number from 0 to 65535");
  }
  return Address{std::string(host), static_cast<uint16_t>(port)};
}

bool IsLoopback(absl::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  if (!absl::StartsWith(host, "127.")) return false;
  // Excludes host names such as 127.example.com.
  for (const char c : host) {
    if (!absl::ascii_isdigit(c) && c != '.') return false;
  }
  return true;
}

namespace {

// Binds and listens, with the errno of a failure.
int ListenOn(int fd, const sockaddr* address, socklen_t size) {
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) {
    // [::] also accepts IPv4, independently of the system's default.
    const int off = 0;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  return bind(fd, address, size) == 0 && listen(fd, SOMAXCONN) == 0 ? 0 : errno;
}

uint16_t PortOf(int fd) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  // The port is at the same place in both.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

absl::Status ListenError(int error, const Address& address) {
  const std::string what = absl::StrCat("listen on ", address.ToString());
  if (error != EADDRINUSE) return ErrnoStatus(error, what);
  const std::string owner = FindPortOwner(address.port);
  return absl::AlreadyExistsError(
      absl::StrCat(what, ": the address is in use", owner.empty() ? "" : " by ", owner));
}

}  // namespace

absl::StatusOr<ListeningSockets> Listen(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen on ", address.ToString(), ": ", gai_strerror(error)));
  }
  ListeningSockets result = {{}, address.port};
  absl::Status status;
  for (const addrinfo* info = found; info != nullptr && status.ok(); info = info->ai_next) {
    const int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                          info->ai_protocol);
    if (fd < 0) continue;  // a family without support
    reinterpret_cast<sockaddr_in*>(info->ai_addr)->sin_port = htons(result.port);
    const int failure = ListenOn(fd, info->ai_addr, info->ai_addrlen);
    if (failure == 0) {
      result.port = PortOf(fd);
      result.sockets.push_back(fd);
      continue;
    }
    close(fd);
    // A name with an address that this machine does not have, such as ::1 without IPv6.
    if (failure == EADDRNOTAVAIL && !result.sockets.empty()) continue;
    status = ListenError(failure, address);
  }
  freeaddrinfo(found);
  if (status.ok() && result.sockets.empty()) status = ListenError(EAFNOSUPPORT, address);
  if (status.ok()) return result;
  for (const int fd : result.sockets) close(fd);
  return status;
}

absl::Status CheckListen(const Address& address) {
  ASSIGN_OR_RETURN(const ListeningSockets listening, Listen(address));
  for (const int fd : listening.sockets) close(fd);
  return absl::OkStatus();
}

}  // namespace muster
