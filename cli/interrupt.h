// Ctrl-C on `run`.
#ifndef MUSTER_CLI_INTERRUPT_H_
#define MUSTER_CLI_INTERRUPT_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cli/output/console.h"
#include "cli/signals.h"
#include "cli/stopper.h"

namespace muster::cli {

// Off a terminal, or on SIGTERM, the job is cancelled and then followed to its end; on a terminal
// the user is asked: cancel, detach or go on. A second signal detaches: it ends the following,
// whatever becomes of the job.
class RunInterrupt {
 public:
  // `cancel` cancels the job; called on a thread of this class. Stopping `stopper` ends the
  // following.
  RunInterrupt(Console& console, Stopper& stopper, std::function<void()> cancel);
  ~RunInterrupt();

  // Cancelled or detached by the user.
  bool interrupted() const;

 private:
  void OnSignal(int signal);
  void Ask();
  void Cancel();
  void Detach();

  Console& console_;
  Stopper& stopper_;
  const std::function<void()> cancel_;
  mutable absl::Mutex mutex_;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  bool signalled_ = false;  // of the watcher's thread
  int end_fd_ = -1;         // readable when asking is to end
  std::thread ask_;         // started by the watcher's thread
  std::unique_ptr<SignalWatcher> watcher_;
};

}  // namespace muster::cli

#endif  // MUSTER_CLI_INTERRUPT_H_
