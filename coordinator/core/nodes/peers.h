// Chooses the workers that a worker asks about its leases when the coordinator does not answer it.
#ifndef MUSTER_COORDINATOR_CORE_NODES_PEERS_H_
#define MUSTER_COORDINATOR_CORE_NODES_PEERS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "coordinator/core/nodes/node_table.h"

namespace muster::core {

inline constexpr size_t kPeers = 8;

// The addresses of the next kPeers READY nodes after `name`, in the order of names and around its
// end, so that each node serves at most kPeers others.
std::vector<std::string> ChoosePeers(const NodeMap& nodes, const NodeName& name);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_PEERS_H_
