// Where the ranks of a command job meet: MASTER_ADDR and MASTER_PORT.
#ifndef MUSTER_WORKER_AGENT_NETWORK_MASTER_ENDPOINT_H_
#define MUSTER_WORKER_AGENT_NETWORK_MASTER_ENDPOINT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/address.h"

namespace muster::agent {

// The key of a generation's store under which the worker of node rank 0 publishes the endpoint.
inline constexpr char kMasterKey[] = "master";

struct MasterEndpoint {
  Address address;      // of node rank 0, and the port that its worker holds
  std::string network;  // its NetworkIdentity
};

std::string EncodeMasterEndpoint(const MasterEndpoint& endpoint);
// INVALID_ARGUMENT.
absl::StatusOr<MasterEndpoint> DecodeMasterEndpoint(absl::string_view text);

// Whether ranks on the node of `own_address` can meet there. FAILED_PRECONDITION, with the cure,
// when one of the two nodes is known by a loopback address and they are not one machine.
absl::Status CheckReachable(const MasterEndpoint& endpoint, const std::string& own_address,
                            const std::string& own_network);

// A port that is bound on all addresses, by a socket that never listens and allows others to bind:
// the system gives it to nobody who asks for any free port, and the program that is told its number
// (and sets SO_REUSEADDR, as servers do) binds it and listens. Thread-safe.
class HeldPort {
 public:
  // 0: a free one. UNAVAILABLE when somebody listens on it; else what the system says.
  static absl::StatusOr<std::unique_ptr<HeldPort>> Hold(uint16_t port);
  ~HeldPort();
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  uint16_t port() const { return port_; }

 private:
  HeldPort(int fd, uint16_t port) : fd_(fd), port_(port) {}

  const int fd_;
  const uint16_t port_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_NETWORK_MASTER_ENDPOINT_H_
