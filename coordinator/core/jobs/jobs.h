// The parts of this room in dependency order: each uses only those declared above it.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOBS_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOBS_H_

#include "coordinator/core/context.h"
#include "coordinator/core/jobs/histories.h"
#include "coordinator/core/jobs/job_names.h"
#include "coordinator/core/jobs/job_states.h"
#include "coordinator/core/jobs/job_submission.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/jobs/log_tails.h"
#include "coordinator/core/jobs/retention.h"
#include "coordinator/core/owners/memory_budget.h"
#include "coordinator/core/owners/owner_table.h"

namespace muster::core {

// Not thread-safe.
struct Jobs {
  explicit Jobs(Context& step_context) : context(step_context) {}

  // Adds the writes and the changed jobs to the step's effects.
  void WriteChanges() {
    table.WriteChanges();
    histories.WriteChanges();
    owners.WriteChanges();
  }

  Context& context;
  OwnerTable owners{context};
  MemoryBudget memory{context.options.job_memory};
  LogTails log_tails{context};
  Histories histories{context};
  JobTable table{memory, context};
  JobNames names{table, context.options};
  Eviction eviction{table, names, log_tails, histories, memory, context};
  JobStates states{table, owners, histories, eviction, context};
  JobSubmission submission{table, names, owners, eviction, states, context};
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOBS_H_
