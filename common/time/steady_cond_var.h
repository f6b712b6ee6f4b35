// A condition variable whose timed waits are measured on the steady clock.
#ifndef MUSTER_COMMON_TIME_STEADY_COND_VAR_H_
#define MUSTER_COMMON_TIME_STEADY_COND_VAR_H_

#include <algorithm>
#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/deadline.h"

namespace muster {

// Like absl::CondVar, whose timed waits, and those of absl::Mutex, end by the wall clock: they
// would last hours longer if that were set back. Waits may end spuriously. Thread-safe.
class SteadyCondVar {
 public:
  void Wait(absl::Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Lock lock{*mutex};
    changed_.wait(lock);
  }
  // Returns true if the wait has lasted for `timeout`.
  bool WaitFor(absl::Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Lock lock{*mutex};
    // Bounded, because the end of the wait must be representable.
    const absl::Duration bounded = std::min(timeout, absl::Hours(24));
    const bool timed_out =
        changed_.wait_for(lock, absl::ToChronoNanoseconds(bounded)) == std::cv_status::timeout;
    return timed_out && bounded == timeout;
  }
  // Returns whether the deadline has passed.
  bool WaitUntil(absl::Mutex* mutex, const Deadline& deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    WaitFor(mutex, deadline.left());
    return deadline.passed();
  }
  // Waits until `ready()` holds, at the latest until `timeout` has passed; returns ready(). Whoever
  // changes what `ready` reads must signal.
  template <typename Ready>
  bool WaitFor(absl::Mutex* mutex, absl::Duration timeout, Ready ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const Deadline deadline(timeout);
    while (!ready()) {
      if (WaitUntil(mutex, deadline)) return ready();
    }
    return true;
  }
  void Signal() { changed_.notify_one(); }
  void SignalAll() { changed_.notify_all(); }

 private:
  // A held mutex, as the standard library releases and takes it.
  struct Lock {
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Unlock(); }
    absl::Mutex& mutex;
  };

  std::condition_variable_any changed_;  // wait_for uses the steady clock
};

}  // namespace muster

#endif  // MUSTER_COMMON_TIME_STEADY_COND_VAR_H_
