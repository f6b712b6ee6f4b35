// Deadlines of gRPC calls, on the steady clock.
#ifndef MUSTER_COMMON_GRPC_DEADLINE_H_
#define MUSTER_COMMON_GRPC_DEADLINE_H_

#include <algorithm>

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace muster {

// Returns the deadline `timeout` from now for ClientContext::set_deadline.
inline gpr_timespec GrpcDeadline(absl::Duration timeout) {
  // Bounded, because the time must be representable.
  const absl::Duration bounded = std::clamp(timeout, absl::ZeroDuration(), absl::Hours(24 * 365));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(absl::ToInt64Microseconds(bounded), GPR_TIMESPAN));
}

}  // namespace muster

#endif  // MUSTER_COMMON_GRPC_DEADLINE_H_
