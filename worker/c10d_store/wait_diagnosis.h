// Derives which ranks the waiting clients of the store wait for.
#ifndef MUSTER_WORKER_C10D_STORE_WAIT_DIAGNOSIS_H_
#define MUSTER_WORKER_C10D_STORE_WAIT_DIAGNOSIS_H_

#include <cstdint>
#include <vector>

#include "worker/c10d_store/roster.h"
#include "worker/c10d_store/status_file.h"
#include "worker/c10d_store/store.h"

namespace muster::c10d_store {

// Waits that have lasted this long are reported.
inline constexpr int64_t kReportedWaitMs = 1000;
// The oldest waits are reported; the others are left out.
inline constexpr size_t kMaxReportedWaits = 8;

// One report per key or barrier, oldest first; one for all keys that the same rank must set. The
// store does not know which rank will set a key, so the missing ranks are, in order of preference:
// - at a barrier or a counter: those that have not arrived;
// - for a key such as "a/3": rank 3, if the ranks M that have set their "a/M" are the ranks M;
// - ranks that have not connected to the store;
// - ranks that do not wait in the store: a rank that waits cannot set the key.
// `now_ms` is on CLOCK_BOOTTIME, as are the times of the store's waits.
std::vector<WaitReport> DiagnoseWaits(const Store& store, const Roster& roster, int64_t now_ms);

}  // namespace muster::c10d_store

#endif  // MUSTER_WORKER_C10D_STORE_WAIT_DIAGNOSIS_H_
