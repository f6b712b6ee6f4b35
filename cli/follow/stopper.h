// Lets one thread end what others wait for.
#ifndef MUSTER_CLI_FOLLOW_STOPPER_H_
#define MUSTER_CLI_FOLLOW_STOPPER_H_

#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace muster::cli {

// Thread-safe.
class Stopper {
 public:
  // Runs the callbacks registered now, and from now on those that come. Once; repeated calls change
  // nothing.
  void Stop();
  bool stopped() const;
  // False as soon as stopped, true when the time has passed.
  bool SleepFor(absl::Duration duration);

  // While it lives, `on_stop` is called when stopped (at once, when that was before).
  class Registration {
   public:
    Registration(Stopper& stopper, std::function<void()> on_stop);
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    Stopper& stopper_;
    uint64_t id_;
  };

 private:
  mutable absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Called under the lock: short, and not back into the stopper.
  std::map<uint64_t, std::function<void()>> callbacks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_STOPPER_H_
