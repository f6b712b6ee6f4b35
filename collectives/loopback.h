// The loopback backend for tests: ranks are threads of one process.
#ifndef MUSTER_COLLECTIVES_LOOPBACK_H_
#define MUSTER_COLLECTIVES_LOOPBACK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// Blocks until all ranks of the group, identified by its id, have called. DEADLINE_EXCEEDED names
// the ranks that did not call within connect_timeout; INVALID_ARGUMENT if the ranks' group options
// differ.
absl::StatusOr<std::unique_ptr<Communicator>> CreateLoopback(const GroupOptions& options);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_LOOPBACK_H_
