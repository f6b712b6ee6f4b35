#include "worker/shim/clock.h"

#include <sys/timerfd.h>
#include <time.h>

namespace muster::shim {
namespace {

int64_t Micros(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
}

}  // namespace

int64_t MonotonicMs() { return Micros(CLOCK_MONOTONIC) / 1000; }

int64_t BootMs() { return Micros(CLOCK_BOOTTIME) / 1000; }

int64_t WallMicros() { return Micros(CLOCK_REALTIME); }

void SetTimer(int fd, int64_t delay_ms) {
  itimerspec spec = {};
  if (delay_ms >= 0) {
    spec.it_value.tv_sec = delay_ms / 1000;
    spec.it_value.tv_nsec = delay_ms % 1000 * 1'000'000;
    if (delay_ms == 0) spec.it_value.tv_nsec = 1;
  }
  timerfd_settime(fd, 0, &spec, nullptr);
}

}  // namespace muster::shim
