#include "common/http/address.h"

#include <netdb.h>
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

absl::Status CheckListen(const Address& address) {
  const std::string what = absl::StrCat("listen on ", address.ToString());
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &found);
  if (error != 0) return absl::InvalidArgumentError(absl::StrCat(what, ": ", gai_strerror(error)));
  absl::Status status;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    const int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, info->ai_protocol);
    if (fd < 0) {
      status = ErrnoStatus(errno, what);
      continue;
    }
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    const bool ok = bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, 1) == 0;
    const int bind_errno = errno;
    close(fd);
    if (ok) continue;
    if (bind_errno == EADDRINUSE) {
      const std::string owner = FindPortOwner(address.port);
      status = absl::AlreadyExistsError(
          absl::StrCat(what, ": the address is in use", owner.empty() ? "" : " by ", owner));
    } else {
      status = ErrnoStatus(bind_errno, what);
    }
    break;
  }
  freeaddrinfo(found);
  return status;
}

}  // namespace muster
