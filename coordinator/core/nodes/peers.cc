#include "coordinator/core/nodes/peers.h"

namespace muster::core {

std::vector<std::string> ChoosePeers(const NodeMap& nodes, const NodeName& name) {
  std::vector<std::string> peers;
  auto next = nodes.upper_bound(name);
  for (size_t seen = 0; seen < nodes.size() && peers.size() < kPeers; ++seen) {
    if (next == nodes.end()) next = nodes.begin();
    const Node& node = next->second;
    if (next->first != name && node.state == v1::READY && !node.peer_address.empty()) {
      peers.push_back(node.peer_address);
    }
    ++next;
  }
  return peers;
}

}  // namespace muster::core
