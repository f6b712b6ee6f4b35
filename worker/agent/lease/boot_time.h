// The clock of lease deadlines.
#ifndef MUSTER_WORKER_AGENT_LEASE_BOOT_TIME_H_
#define MUSTER_WORKER_AGENT_LEASE_BOOT_TIME_H_

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"
#include "common/time.h"
#include "worker/shim/clock.h"

namespace muster::agent {

// The time on CLOCK_BOOTTIME, which advances while the machine is suspended; see
// worker/shim/fence.h. Not comparable with the times of common/now.h. Thread-safe.
inline SteadyTime BootNow() { return SteadyTime(absl::Milliseconds(shim::BootMs())); }

// The deadline as shims receive it.
inline int64_t ToBootMs(SteadyTime deadline) {
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(deadline.since_start()));
}

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_BOOT_TIME_H_
