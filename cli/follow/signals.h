// Stops waiting calls on SIGINT, SIGTERM, SIGHUP or the request of another thread.
#ifndef MUSTER_CLI_FOLLOW_SIGNALS_H_
#define MUSTER_CLI_FOLLOW_SIGNALS_H_

#include <signal.h>

#include <cstdint>
#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/steady_cond_var.h"

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

// At most one instance per process, since signal handlers are process-wide. A signal that is
// ignored, as SIGHUP is under nohup, stays ignored.
class SignalWatcher {
 public:
  // `on_signal` receives the signal's number; it is called once per signal, never concurrently.
  explicit SignalWatcher(std::function<void(int)> on_signal);
  // Afterwards `on_signal` is not called any more, and the previous signal handlers are restored.
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void Run();

  const std::function<void(int)> on_signal_;
  int pipe_[2] = {-1, -1};  // the handler writes a signal's number to it, the destructor a zero
  std::map<int, struct sigaction> before_;  // by signal number
  std::thread thread_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_SIGNALS_H_
