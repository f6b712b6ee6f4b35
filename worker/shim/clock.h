// Clocks and timers of a shim, and the end of its lease.
#ifndef MUSTER_WORKER_SHIM_CLOCK_H_
#define MUSTER_WORKER_SHIM_CLOCK_H_

#include <cstdint>

#include "common/files/owned_fd.h"

namespace muster::shim {

int64_t MonotonicMs();
// Like MonotonicMs, but advances while the machine is suspended.
int64_t BootMs();
// Since 1970.
int64_t WallMicros();

// Sets the timerfd to `delay_ms` from now; zero fires at once, a negative value never.
void SetTimer(int fd, int64_t delay_ms);

// The end of the lease of a rank's processes. A worker that receives acknowledgements from the
// coordinator moves it on; a shim whose worker does not, because it was killed or stopped or is cut
// off, ends the processes at this deadline, before the coordinator starts them elsewhere.
//
// Deadlines are on CLOCK_BOOTTIME, which advances while the machine is suspended: the coordinator's
// clock does too, so a rank that wakes after its lease must end.
class Fence {
 public:
  // Creates the timer; returns false, with errno set, on failure. Call it before SetDeadline.
  bool Open();
  // Readable once the deadline has passed.
  int fd() const { return timer_.get(); }

  // Replaces the deadline, in milliseconds on CLOCK_BOOTTIME; 0 removes it.
  void SetDeadline(int64_t boot_ms);
  bool has_deadline() const { return deadline_ms_ != 0; }
  bool HasPassed() const;

 private:
  OwnedFd timer_;
  int64_t deadline_ms_ = 0;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_CLOCK_H_
