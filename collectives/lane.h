// A queue that runs operations one after the other in the order of issue.
#ifndef MUSTER_COLLECTIVES_LANE_H_
#define MUSTER_COLLECTIVES_LANE_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "collectives/communicator.h"

namespace muster::collectives {

// Time to spin before sleeping: about the cost of a sleep and a wake-up. Spinning longer would take
// the CPU from threads that compute.
inline constexpr absl::Duration kSpinTime = absl::Microseconds(20);

// Runs operations on its own thread; a thread that waits for an operation that has not started runs
// it itself, which saves two context switches. Thread-safe.
class Lane : public std::enable_shared_from_this<Lane> {
 public:
  static std::shared_ptr<Lane> Start(const std::string& thread_name);
  ~Lane();

  // After Stop the Work completes with ABORTED and `run` is not called.
  std::shared_ptr<Work> Issue(std::function<absl::Status()> run);

  // Runs the operations still queued, then joins the thread. Called once, from one thread.
  void Stop();

  bool Idle() const;

 private:
  class Task;

  Lane() = default;
  void Loop();
  // Runs the oldest task with `mutex_` released.
  void RunOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunUntilDone(const Task& task);
  bool Runnable() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !running_ && !queue_.empty();
  }
  bool RunnableOrStopping() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Runnable() || (stopping_ && queue_.empty() && !running_);
  }

  mutable absl::Mutex mutex_;
  absl::CondVar changed_;
  std::deque<std::shared_ptr<Task>> queue_ ABSL_GUARDED_BY(mutex_);
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_LANE_H_
