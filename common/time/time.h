// Steady and wall time as separate types. Components are given the time, so that tests control it;
// common/time/now.h reads the clocks.
#ifndef MUSTER_COMMON_TIME_TIME_H_
#define MUSTER_COMMON_TIME_TIME_H_

#include "absl/time/time.h"

namespace muster {

// A moment on the steady clock, as the time since an arbitrary start; never goes back. For leases
// and deadlines.
class SteadyTime {
 public:
  SteadyTime() = default;
  explicit SteadyTime(absl::Duration since_start) : since_start_(since_start) {}
  static SteadyTime Infinite() { return SteadyTime(absl::InfiniteDuration()); }
  absl::Duration since_start() const { return since_start_; }

  friend SteadyTime operator+(SteadyTime t, absl::Duration d) {
    return SteadyTime(t.since_start_ + d);
  }
  friend SteadyTime operator-(SteadyTime t, absl::Duration d) {
    return SteadyTime(t.since_start_ - d);
  }
  friend absl::Duration operator-(SteadyTime a, SteadyTime b) {
    return a.since_start_ - b.since_start_;
  }
  friend bool operator<(SteadyTime a, SteadyTime b) { return a.since_start_ < b.since_start_; }
  friend bool operator>(SteadyTime a, SteadyTime b) { return b < a; }
  friend bool operator<=(SteadyTime a, SteadyTime b) { return !(b < a); }
  friend bool operator>=(SteadyTime a, SteadyTime b) { return !(a < b); }
  friend bool operator==(SteadyTime a, SteadyTime b) { return a.since_start_ == b.since_start_; }
  friend bool operator!=(SteadyTime a, SteadyTime b) { return !(a == b); }

 private:
  absl::Duration since_start_ = absl::ZeroDuration();
};

struct Time {
  SteadyTime steady;
  absl::Time wall;  // for display and records only
};

}  // namespace muster

#endif  // MUSTER_COMMON_TIME_TIME_H_
