// Chooses the workers that a worker asks about its leases when the coordinator does not answer it.
#ifndef MUSTER_COORDINATOR_CORE_NODES_PEERS_H_
#define MUSTER_COORDINATOR_CORE_NODES_PEERS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "coordinator/core/nodes/node_table.h"

namespace muster::core {

inline constexpr size_t kPeers = 8;

// The addresses of the nodes that are not lost after `name`, in the order of names and around its
// end: of all, who may vouch for it; of kPeers where there are too many nodes for a fence set, so
// that each serves at most kPeers others.
std::vector<std::string> ChoosePeers(const NodeMap& nodes, const NodeName& name);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_PEERS_H_
