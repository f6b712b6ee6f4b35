// HOST:PORT addresses.
#ifndef MUSTER_COMMON_HTTP_ADDRESS_H_
#define MUSTER_COMMON_HTTP_ADDRESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

struct Address {
  std::string host;  // host name or IP address; IPv6 without brackets
  uint16_t port = 0;

  // HOST:PORT, with brackets around an IPv6 host.
  std::string ToString() const;
};

// Parses 127.0.0.1:80, [::1]:80 or name:80. INVALID_ARGUMENT for anything else, including an empty
// host.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// Whether the host is 127.0.0.0/8, ::1 or localhost, so that only this machine can reach it. False
// for any other host name, since names are not resolved.
bool IsLoopback(absl::string_view host);

// Nonblocking listening sockets, owned by the caller: one for each address of a host name, all with
// the same port.
struct ListeningSockets {
  std::vector<int> sockets;
  uint16_t port = 0;
};

// Listens on `address`; port 0 means any free port. INVALID_ARGUMENT for an unknown host,
// ALREADY_EXISTS if the address is in use, with the owning process if it can be determined, or the
// system's error.
absl::StatusOr<ListeningSockets> Listen(const Address& address);

// Checks whether `address` can be listened on; used because gRPC does not report errno. Errors as
// of Listen. Port 0 checks only the host.
absl::Status CheckListen(const Address& address);

}  // namespace muster

#endif  // MUSTER_COMMON_HTTP_ADDRESS_H_
