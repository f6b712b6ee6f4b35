// The hierarchical backend: shared memory inside nodes and a network between them, or any two
// communicators.
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
  std::unique_ptr<Communicator> local;  // the ranks of this rank's node
  // Where all nodes have equally many ranks, those of the same local rank; else the first ranks of
  // the nodes, and null on the others.
  std::unique_ptr<Communicator> cross;
  std::unique_ptr<Communicator> world;  // all; for what has no hierarchy, point to point above all
};

// Equal nodes: AllReduce is LOCAL reduce-scatter, CROSS all-reduce of the slice, LOCAL all-gather,
// in chunks so that both work at once. Unequal: LOCAL reduce, all-reduce among the first ranks,
// LOCAL broadcast. INVALID_ARGUMENT where the parts do not fit together.
absl::StatusOr<std::unique_ptr<Communicator>> CreateHierarchical(const GroupOptions& options,
                                                                 HierarchicalParts parts);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_HIERARCHICAL_HIERARCHICAL_H_
