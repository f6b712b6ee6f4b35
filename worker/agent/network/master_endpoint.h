// Where the ranks of a command job meet: MASTER_ADDR and MASTER_PORT.
#ifndef MUSTER_WORKER_AGENT_NETWORK_MASTER_ENDPOINT_H_
#define MUSTER_WORKER_AGENT_NETWORK_MASTER_ENDPOINT_H_

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

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_NETWORK_MASTER_ENDPOINT_H_
