// Clocks and timers of a shim.
#ifndef MUSTER_WORKER_SHIM_CLOCK_H_
#define MUSTER_WORKER_SHIM_CLOCK_H_

#include <cstdint>

namespace muster::shim {

int64_t MonotonicMs();
// Like MonotonicMs, but advances while the machine is suspended.
int64_t BootMs();
// Since 1970.
int64_t WallMicros();

// Sets the timerfd to `delay_ms` from now; zero fires at once, a negative value never.
void SetTimer(int fd, int64_t delay_ms);

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_CLOCK_H_
