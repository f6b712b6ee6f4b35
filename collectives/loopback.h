// The loopback backend: ranks that are threads of one process. For tests.
#ifndef MUSTER_COLLECTIVES_LOOPBACK_H_
#define MUSTER_COLLECTIVES_LOOPBACK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// Waits until all ranks of the group, found by its id, have called. DEADLINE_EXCEEDED names those
// that did not within connect_timeout; INVALID_ARGUMENT where ranks disagree about the group.
absl::StatusOr<std::unique_ptr<Communicator>> CreateLoopback(const GroupOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_LOOPBACK_H_
