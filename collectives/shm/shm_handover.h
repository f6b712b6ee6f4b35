// How a group's first rank gives its memfd to the others: over a unix socket in the abstract
// namespace, named by the group's id, so that nothing appears in a file system.
#ifndef MUSTER_COLLECTIVES_SHM_SHM_HANDOVER_H_
#define MUSTER_COLLECTIVES_SHM_SHM_HANDOVER_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"
#include "collectives/shm/shm_segment.h"

namespace muster::collectives {

// Blocks until every rank of the group has the segment, within options.connect_timeout. Only
// processes of the same user are served. DEADLINE_EXCEEDED names the ranks that did not come; what
// options.store returns.
absl::StatusOr<std::unique_ptr<ShmSegment>> ShareSegment(const GroupOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_SHM_SHM_HANDOVER_H_
