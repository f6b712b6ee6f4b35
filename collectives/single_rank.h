// The communicator of a group of one rank: every operation is a copy.
#ifndef MUSTER_COLLECTIVES_SINGLE_RANK_H_
#define MUSTER_COLLECTIVES_SINGLE_RANK_H_

#include <memory>

#include "collectives/communicator.h"

namespace muster::collectives {

std::unique_ptr<Communicator> CreateSingleRank(const GroupOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SINGLE_RANK_H_
