// A one-shot stop signal: lets one thread end the waiting of others.
#ifndef MUSTER_CLI_FOLLOW_STOPPER_H_
#define MUSTER_CLI_FOLLOW_STOPPER_H_

#include <cstdint>
#include <functional>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/steady_cond_var.h"

namespace muster::cli {

// Thread-safe.
class Stopper {
 public:
  // Runs the registered callbacks; later registrations are called at once. Repeated calls have no
  // effect.
  void Stop();
  bool stopped() const;
  // Returns true after `duration`, or false as soon as stopped.
  bool SleepFor(absl::Duration duration);

  // While the registration lives, `on_stop` is called on Stop; at once if Stop was called before.
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
  SteadyCondVar changed_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Called under the lock: they must be short and must not call the stopper.
  std::map<uint64_t, std::function<void()>> callbacks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_STOPPER_H_
