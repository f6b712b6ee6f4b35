// An all-reduce in two levels, by communicators that are parts of one.
#ifndef MUSTER_COLLECTIVES_NCCL_HIERARCHY_H_
#define MUSTER_COLLECTIVES_NCCL_HIERARCHY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/operation.h"

namespace muster::collectives {

// Which of the ranks' communicators: all, those of one node, or those of one place on all nodes.
enum class NcclLevel : uint8_t { kWorld, kLocal, kCross };
inline constexpr size_t kNcclLevels = 3;

struct NcclStage {
  NcclLevel level = NcclLevel::kWorld;
  Operation operation;
};

// Where a rank is among nodes of equally many ranks, numbered node by node.
struct NcclPlace {
  uint32_t local_rank = 0;
  uint32_t local_size = 1;
};

// The stages of an AllReduce, each of which begins when the one before has ended: LOCAL
// reduce-scatter, CROSS all-reduce of this rank's part, LOCAL all-gather, all in `recv`. Parts
// begin at multiples of 16 bytes from the first, as NCCL's fast loads want them; what that leaves,
// less than 32 bytes a rank of the node, is a plain all-reduce at the end. Each element is summed
// in one place of each level, so all ranks have the same bits.
std::vector<NcclStage> HierarchicalStages(const Operation& all_reduce, const NcclPlace& place);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_HIERARCHY_H_
