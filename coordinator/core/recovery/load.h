// Loads the coordinator's state from its store.
#ifndef MUSTER_COORDINATOR_CORE_RECOVERY_LOAD_H_
#define MUSTER_COORDINATOR_CORE_RECOVERY_LOAD_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "coordinator/core/admission.h"
#include "coordinator/core/context.h"
#include "coordinator/core/identity/identity_table.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/nodes/fence.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/owners/secret_table.h"
#include "coordinator/store/store.h"

namespace muster::core {

// Migrates records of an older schema and fills the tables and the queue. Returns the jobs that
// were active, which the caller has to resume. Errors: DATA_LOSS when records contradict one
// another, FAILED_PRECONDITION for a newer schema.
absl::StatusOr<std::vector<JobId>> LoadState(absl::Span<const store::Record> stored, JobTable& jobs,
                                             NodeTable& nodes, Admission& admission,
                                             SecretTable& secrets, IdentityTable& identities,
                                             Fence& fence, Context& context);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RECOVERY_LOAD_H_
