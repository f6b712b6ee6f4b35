// Deadlines of waits, on the steady clock.
#ifndef MUSTER_COMMON_TIME_DEADLINE_H_
#define MUSTER_COMMON_TIME_DEADLINE_H_

#include <algorithm>

#include "absl/time/time.h"
#include "common/time/now.h"
#include "common/time/time.h"

namespace muster {

// The end of a wait that begins now. Setting the wall clock neither ends nor prolongs it. Copyable;
// safe to read from any thread.
class Deadline {
 public:
  using Clock = SteadyTime (*)();

  explicit Deadline(absl::Duration timeout, Clock clock = SteadyNow)
      : clock_(clock), end_(clock() + timeout) {}

  bool passed() const { return clock_() >= end_; }
  // Zero once it has passed.
  absl::Duration left() const { return std::max(end_ - clock_(), absl::ZeroDuration()); }

 private:
  Clock clock_;
  SteadyTime end_;
};

}  // namespace muster

#endif  // MUSTER_COMMON_TIME_DEADLINE_H_
