// Identifies the ranks that stall a group, from the reports of ranks that timed out.
#ifndef MUSTER_COLLECTIVES_STALLED_RANKS_H_
#define MUSTER_COLLECTIVES_STALLED_RANKS_H_

#include <cstdint>
#include <vector>

#include "collectives/communicator.h"

namespace muster::collectives {

// `waiting_for` lists the job ranks for which this rank timed out; some may themselves be waiting
// for others. Each rank that times out publishes its own list in the group's store, and this
// function follows the lists to the ranks that have published none. Returns those in ascending
// order, or `waiting_for` if there are none. Blocks for half a second. Only the first list of a
// rank counts.
std::vector<uint32_t> FindStalledRanks(const GroupOptions& options,
                                       const std::vector<uint32_t>& waiting_for);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_STALLED_RANKS_H_
