#include "coordinator/core/nodes/peers.h"

#include "coordinator/core/nodes/fence.h"

namespace muster::core {

std::vector<std::string> ChoosePeers(const NodeMap& nodes, const NodeName& name) {
  const size_t most = nodes.size() <= Fence::kMembers ? nodes.size() : kPeers;
  std::vector<std::string> peers;
  auto next = nodes.upper_bound(name);
  for (size_t seen = 0; seen < nodes.size() && peers.size() < most; ++seen) {
    if (next == nodes.end()) next = nodes.begin();
    const Node& node = next->second;
    if (next->first != name && node.state != v1::LOST && !node.peer_address.empty()) {
      peers.push_back(node.peer_address);
    }
    ++next;
  }
  return peers;
}

}  // namespace muster::core
