// A TCP port reserved for a program that is started later.
#ifndef MUSTER_COMMON_NETWORK_HELD_PORT_H_
#define MUSTER_COMMON_NETWORK_HELD_PORT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "common/files/owned_fd.h"

namespace muster {

// A port bound on all addresses by a socket that never listens and allows others to bind. The
// kernel does not assign it to a process that asks for any free port; a program that is given its
// number and sets SO_REUSEADDR, as servers do, can bind it and listen. Thread-safe.
class HeldPort {
 public:
  // Port 0 means any free port. UNAVAILABLE when a process listens on the port; otherwise the
  // system's error.
  static absl::StatusOr<std::unique_ptr<HeldPort>> Hold(uint16_t port);

  uint16_t port() const { return port_; }

 private:
  HeldPort(OwnedFd socket, uint16_t port) : socket_(std::move(socket)), port_(port) {}

  const OwnedFd socket_;
  const uint16_t port_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_NETWORK_HELD_PORT_H_
