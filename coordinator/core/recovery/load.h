// Loads the coordinator's state from its store.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_LOAD_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_LOAD_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/core/context.h"
#include "coordinator/core/identity/identity_table.h"
#include "coordinator/core/jobs/jobs.h"
#include "coordinator/core/nodes/fence.h"
#include "coordinator/core/nodes/node_sessions.h"
#include "coordinator/core/owners/secret_table.h"
#include "coordinator/store/store.h"

namespace muster::core {

// Jobs that were loaded and that the caller has to continue.
struct LoadedJobs {
  std::vector<JobId> queued;  // they enter the queue, in this order
  std::vector<JobId> active;  // they resume
};

// Carries out an interrupted step, migrates records of an older schema, and fills the tables.
// Errors: DATA_LOSS when records contradict one another, FAILED_PRECONDITION for a newer schema.
absl::StatusOr<LoadedJobs> LoadState(absl::Span<const store::Record> stored, Jobs& jobs,
                                     NodeSessions& nodes, SecretTable& secrets,
                                     IdentityTable& identities, Fence& fence, Context& context);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_LOAD_H_
