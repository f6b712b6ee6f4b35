#include "worker/shim/fence.h"

#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "worker/shim/clock.h"

namespace muster::shim {

Fence::~Fence() {
  if (fd_ >= 0) close(fd_);
}

bool Fence::Open() {
  fd_ = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
  return fd_ >= 0;
}

void Fence::SetDeadline(int64_t boot_ms) {
  deadline_ms_ = boot_ms;
  itimerspec spec = {};
  spec.it_value.tv_sec = boot_ms / 1000;
  spec.it_value.tv_nsec = boot_ms % 1000 * 1'000'000;
  timerfd_settime(fd_, TFD_TIMER_ABSTIME, &spec, nullptr);
}

bool Fence::HasPassed() const { return deadline_ms_ != 0 && BootMs() >= deadline_ms_; }

}  // namespace muster::shim
