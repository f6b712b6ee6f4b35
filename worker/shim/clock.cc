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

bool Fence::Open() {
  timer_ = OwnedFd(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
  return fd() >= 0;
}

void Fence::SetDeadline(int64_t boot_ms) {
  deadline_ms_ = boot_ms;
  itimerspec spec = {};
  spec.it_value.tv_sec = boot_ms / 1000;
  spec.it_value.tv_nsec = boot_ms % 1000 * 1'000'000;
  timerfd_settime(fd(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

bool Fence::HasPassed() const { return deadline_ms_ != 0 && BootMs() >= deadline_ms_; }

}  // namespace muster::shim
