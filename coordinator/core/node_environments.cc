#include "coordinator/core/node_environments.h"

#include <set>

namespace muster::core {

std::vector<v1::NodeEnvironmentRecord> EnvironmentsOf(const v1::GenerationRecord& generation,
                                                      const NodeTable& nodes) {
  std::vector<v1::NodeEnvironmentRecord> environments;
  for (const v1::NodePlacement& placement : generation.nodes()) {
    v1::NodeEnvironmentRecord& environment = environments.emplace_back();
    environment.set_node(placement.node());
    const Node* const node = nodes.Find(NodeName(placement.node()));
    if (node == nullptr) continue;
    environment.set_software_version(node->hello.software_version());
    environment.set_cpu_count(node->hello.cpu_count());
    environment.set_memory_bytes(node->hello.memory_bytes());
    std::set<uint32_t> used;
    for (const v1::RankRecord& rank : placement.ranks()) {
      used.insert(rank.slots().begin(), rank.slots().end());
    }
    for (const v1::Slot& slot : node->hello.slots()) {
      if (!slot.has_device() || used.count(slot.index()) == 0) continue;
      environment.add_devices(slot.device().name());
      environment.set_driver_version(slot.device().driver_version());
    }
  }
  return environments;
}

}  // namespace muster::core
