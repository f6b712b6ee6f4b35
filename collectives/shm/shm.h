// The shm backend: ranks on one node, over shared memory.
#ifndef MUSTER_COLLECTIVES_SHM_SHM_H_
#define MUSTER_COLLECTIVES_SHM_SHM_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// Blocks until every rank of the group has called, on the same machine and as the same user.
// Buffers from Allocate are reduced in place, without a copy; others are staged through the segment
// in chunks. DEADLINE_EXCEEDED names the ranks that did not call within connect_timeout;
// UNAVAILABLE carries the peer's rank.
absl::StatusOr<std::unique_ptr<Communicator>> CreateShm(const GroupOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SHM_SHM_H_
