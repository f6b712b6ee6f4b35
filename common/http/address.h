// HOST:PORT addresses that a daemon listens on.
#ifndef MUSTER_COMMON_HTTP_ADDRESS_H_
#define MUSTER_COMMON_HTTP_ADDRESS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace muster {

struct Address {
  std::string host;  // a name or a number, an IPv6 one without its brackets
  uint16_t port = 0;

  // With brackets around an IPv6 host.
  std::string ToString() const;
};

// From 127.0.0.1:80, [::1]:80 or name:80. INVALID_ARGUMENT for anything else; the host may not be
// empty.
absl::StatusOr<Address> ParseAddress(absl::string_view text);

// Whether only this machine can reach the host: 127.0.0.0/8, ::1 and localhost. A name that would
// have to be looked up is not.
bool IsLoopback(absl::string_view host);

// Why `address` cannot be listened on, found by trying: libraries that listen for us keep errno to
// themselves. ALREADY_EXISTS when it is in use, by whom where that can be told; OK when it can be
// listened on now. Port 0 tries the host alone.
absl::Status CheckListen(const Address& address);

}  // namespace muster

#endif  // MUSTER_COMMON_HTTP_ADDRESS_H_
