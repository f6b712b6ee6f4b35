// An event that happens once, with timed waits on the steady clock.
#ifndef MUSTER_COMMON_TIME_STEADY_NOTIFICATION_H_
#define MUSTER_COMMON_TIME_STEADY_NOTIFICATION_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/steady_cond_var.h"

namespace muster {

// Like absl::Notification, whose timed wait ends by the wall clock. Thread-safe.
class SteadyNotification {
 public:
  // Repeated calls have no effect.
  void Notify() {
    absl::MutexLock lock(&mutex_);
    notified_ = true;
    changed_.SignalAll();
  }
  bool HasBeenNotified() const {
    absl::MutexLock lock(&mutex_);
    return notified_;
  }
  // Returns whether it was notified, at the latest after `timeout`.
  bool WaitFor(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    return changed_.WaitFor(&mutex_, timeout, [this] {
      mutex_.AssertHeld();
      return notified_;
    });
  }

 private:
  mutable absl::Mutex mutex_;
  SteadyCondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace muster

#endif  // MUSTER_COMMON_TIME_STEADY_NOTIFICATION_H_
