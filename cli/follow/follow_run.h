// Follows a submitted job for `muster run`: shows its progress and its ranks' output, handles
// signals, and exits with its exit code.
#ifndef MUSTER_CLI_FOLLOW_FOLLOW_RUN_H_
#define MUSTER_CLI_FOLLOW_FOLLOW_RUN_H_

#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cli/client.h"
#include "cli/context.h"
#include "cli/follow/signals.h"
#include "cli/output/console.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::cli {

// On a terminal, SIGINT asks the user whether to cancel, detach or continue; without one, it
// cancels the job. A second SIGINT cancels, a third one stops waiting for the job to end. SIGTERM
// and SIGHUP, which a closing shell or login sends, detach: the job keeps running. If the job must
// not be left alone, any signal cancels it, and the second one stops waiting.
class RunInterrupt {
 public:
  // `cancel` cancels the job; it is called on a thread of this class. `stopper` is stopped to end
  // the following.
  RunInterrupt(Console& console, Stopper& stopper, bool may_detach, std::function<void()> cancel);
  ~RunInterrupt();

  // Whether the user has cancelled the job or detached from it.
  bool interrupted() const;

 private:
  void OnSignal(int signal);
  void StartAsking();
  void EndAsking();
  void Ask();
  void Cancel();
  void Detach();

  Console& console_;
  Stopper& stopper_;
  const bool may_detach_;
  const std::function<void()> cancel_;
  mutable absl::Mutex mutex_;
  bool interrupted_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool asking_ ABSL_GUARDED_BY(mutex_) = false;
  int end_fd_ = -1;  // readable when the question is to be withdrawn
  std::thread ask_;  // started and joined by the watcher's thread
  std::unique_ptr<SignalWatcher> watcher_;
};

struct FollowRunOptions {
  bool losses = false;     // include losses in the job that -o json prints
  bool may_detach = true;  // whether the job may keep running after this process exits
};

// Follows the job until it has finished, through signals and restarts of the coordinator. Also
// prints the output of a command job's ranks, unless stdout is reserved for the job itself.
// Stopping `stopper` ends the following. Returns the exit code.
int FollowRun(Context& context, ClusterClient& client, const v1::Job& job,
              const FollowRunOptions& options, Stopper& stopper);

}  // namespace muster::cli

#endif  // MUSTER_CLI_FOLLOW_FOLLOW_RUN_H_
