// Accounts for the time of jobs; see goodput/time_account.h.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_JOB_TIME_H_
#define MUSTER_COORDINATOR_CORE_JOBS_JOB_TIME_H_

#include "coordinator/core/context.h"
#include "coordinator/core/goodput/ledger.h"
#include "coordinator/core/jobs/job_table.h"
#include "coordinator/core/owners/owner.h"

namespace muster::core {

// The slots that no other job can use because of the generation.
SlotCount CountSlots(const v1::GenerationRecord& record);

// Charges the job's time until now, as its state and the progress of its ranks require, and marks
// its record if that is due. Called after reports of its ranks; JobStates calls it for every change
// of state.
void UpdateTimeAccount(Job& job, JobTable& jobs, Context& context);

// Ends the account of the living generation, of which no rank is left; returns its time.
Ledger EndGenerationTime(Job& job, Context& context);

// Opens an account for a job of a store that has none for it, or continues the stored one.
void RestoreTimeAccount(Job& job, const Context& context);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_JOB_TIME_H_
