// The rendezvous address of a command job's ranks: MASTER_ADDR and MASTER_PORT.
#ifndef MUSTER_WORKER_AGENT_GENERATION_STORE_MASTER_ENDPOINT_H_
#define MUSTER_WORKER_AGENT_GENERATION_STORE_MASTER_ENDPOINT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/http/address.h"

namespace muster::agent {

// The key of a generation's store under which the worker of node rank 0 publishes the endpoint.
inline constexpr char kMasterKey[] = "master";

struct MasterEndpoint {
  Address address;      // address of node rank 0 and the port reserved by its worker
  std::string network;  // NetworkIdentity of node rank 0
};

std::string EncodeMasterEndpoint(const MasterEndpoint& endpoint);
// INVALID_ARGUMENT.
absl::StatusOr<MasterEndpoint> DecodeMasterEndpoint(absl::string_view text);

// Whether ranks on the node of `own_address` can reach the endpoint. FAILED_PRECONDITION, with a
// remedy, if one of the nodes is registered with a loopback address and they are different
// machines.
absl::Status CheckReachable(const MasterEndpoint& endpoint, const std::string& own_address,
                            const std::string& own_network);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_STORE_MASTER_ENDPOINT_H_
