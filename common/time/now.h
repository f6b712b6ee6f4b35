// Reads this machine's clocks. Separate from common/time/time.h, so that code that is given the
// time depends on its types only.
#ifndef MUSTER_COMMON_TIME_NOW_H_
#define MUSTER_COMMON_TIME_NOW_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/time/time.h"

namespace muster {

// Thread-safe.
inline SteadyTime SteadyNow() {
  return SteadyTime(absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()));
}
inline Time Now() { return {SteadyNow(), absl::Now()}; }

}  // namespace muster

#endif  // MUSTER_COMMON_TIME_NOW_H_
