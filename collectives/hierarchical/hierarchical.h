// The hierarchical backend: combines a communicator within nodes (normally shared memory) with one
// between nodes (normally a network).
#ifndef MUSTER_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_H_
#define MUSTER_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// The ranks of the group are numbered node by node.
struct HierarchicalParts {
  std::vector<uint32_t> ranks_on_node;
  std::unique_ptr<Communicator> local;  // ranks of this rank's node
  // If all nodes have the same number of ranks, the ranks with this local rank; else the first
  // ranks of the nodes, and null on the others.
  std::unique_ptr<Communicator> cross;
  // All ranks; for operations without a hierarchy, mainly point-to-point.
  std::unique_ptr<Communicator> world;
};

// Equal nodes: AllReduce is LOCAL reduce-scatter, CROSS all-reduce of the slice, LOCAL all-gather,
// in chunks so that both levels overlap. Unequal nodes: LOCAL reduce, all-reduce among the first
// ranks, LOCAL broadcast. INVALID_ARGUMENT if the parts do not match.
absl::StatusOr<std::unique_ptr<Communicator>> CreateHierarchical(const GroupOptions& options,
                                                                 HierarchicalParts parts);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_H_
