// Two-level all-reduce with communicators that are split off the group's communicator.
#ifndef MUSTER_COLLECTIVES_NCCL_HIERARCHY_H_
#define MUSTER_COLLECTIVES_NCCL_HIERARCHY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/operation.h"

namespace muster::collectives {

// Communicators of a rank: all ranks, the ranks of its node, or the ranks with its local rank on
// all nodes.
enum class NcclLevel : uint8_t { kWorld, kLocal, kCross };
inline constexpr size_t kNcclLevels = 3;

struct NcclStage {
  NcclLevel level = NcclLevel::kWorld;
  Operation operation;
};

// Position of a rank among nodes with equal numbers of ranks, numbered node by node.
struct NcclPlace {
  uint32_t local_rank = 0;
  uint32_t local_size = 1;
};

// Returns the stages of an AllReduce, which run one after the other: LOCAL reduce-scatter, CROSS
// all-reduce of this rank's segment, LOCAL all-gather, all in `recv`. Segments start at multiples
// of 16 bytes from the beginning, which NCCL's vectorized loads require; the remainder, less than
// 32 bytes per rank of the node, is reduced by a plain all-reduce at the end. Each element is
// summed in one place per level, so all ranks get identical bits.
std::vector<NcclStage> HierarchicalStages(const Operation& all_reduce, const NcclPlace& place);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_HIERARCHY_H_
