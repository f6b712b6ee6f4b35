// Passes the memfd of a group's first rank to the others over a unix socket in the abstract
// namespace, named by the group's id, so that nothing appears in a file system.
#ifndef MUSTER_COLLECTIVES_SHM_SHM_HANDOVER_H_
#define MUSTER_COLLECTIVES_SHM_SHM_HANDOVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "collectives/shm/shm_segment.h"

namespace muster::collectives {

// Blocks until every rank of the group has the segment, at most options.connect_timeout. Serves
// only processes of the same user. DEADLINE_EXCEEDED names the ranks that did not connect; errors
// of options.store.
absl::StatusOr<std::unique_ptr<ShmSegment>> ShareSegment(const GroupOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SHM_SHM_HANDOVER_H_
