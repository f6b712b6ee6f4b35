// Runs the core: one thread steps it, a second one commits its writes, and what the steps want done
// leaves the process only when nothing can make it untrue.
//
// A turn takes what is queued, steps it, and yields its writes and its releases (effects and the
// answers of queries). Turns are released in the order in which they were taken, each after its own
// writes are on disk. A turn without writes is therefore released at once when no commit is
// outstanding, and otherwise behind the commits before it: what it says may rest on them. Turns
// that queue up behind a commit share the next one. Releases never run concurrently; they run on
// either thread, and must not wait.
//
// A failed commit ends the process: memory is never ahead of disk.
#ifndef MUSTER_COORDINATOR_SERVICE_CORE_LOOP_H_
#define MUSTER_COORDINATOR_SERVICE_CORE_LOOP_H_

#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/now.h"
#include "common/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/event.h"
#include "coordinator/store/store.h"

namespace muster::service {

using Release = absl::AnyInvocable<void()>;

// Sees every turn, on the core's thread.
class TurnObserver {
 public:
  virtual ~TurnObserver() = default;
  // After a turn's steps; `changed` holds each job once. What is added to `releases` is released
  // with the turn. Returns when it wants to be called again at the latest.
  virtual SteadyTime AfterTurn(core::Core& core, absl::Span<const JobId> changed, const Time& now,
                               std::vector<Release>& releases) = 0;
  // How late the loop was: for an event from its arrival, for a deadline from its time.
  virtual void OnLag(absl::Duration lag) = 0;
};

class CoreLoop {
 public:
  struct Options {
    std::function<Time()> clock = Now;
    // Where effects go, as a release. Their writes are already committed.
    std::function<void(core::Effects)> deliver;
    // On the committing thread, when nothing can be released any more. Expected to end the process.
    std::function<void(const absl::Status&)> on_commit_failure;
    TurnObserver* observer = nullptr;  // outlives the loop
  };
  // Runs on the core's thread; what it returns is released in turn. May return nothing.
  using Query = absl::AnyInvocable<Release(core::Core&, const Time&)>;

  // `core` is loaded. `store` outlives the loop.
  CoreLoop(std::unique_ptr<core::Core> core, store::Store& store, Options options);
  // Stops.
  ~CoreLoop();

  void Start();
  // Steps, commits and releases everything that was queued before, then returns.
  void Stop();

  // Thread-safe. False, with nothing kept, once stopping. `taken` runs on the core's thread when
  // the event has left the queue: who waits for it before queueing the next has one event in it at
  // most.
  bool Push(core::Event event, absl::AnyInvocable<void()> taken = nullptr);
  bool Ask(Query query);
  // Looks at the clock again: for clocks moved by hand.
  void Wake();

  // Thread-safe. How long the turn under way or the oldest event that waits has been taking.
  absl::Duration Delay() const;

 private:
  struct Item {
    core::Event event;
    absl::AnyInvocable<void()> taken;
    Query query;  // when set, there is no event
    SteadyTime queued;
  };
  struct Turn {
    std::vector<store::Mutation> writes;
    std::vector<Release> releases;
  };

  bool Enqueue(Item item);
  void RunCore();
  void RunCommitter();
  // Waits for something to do; what it took is empty when a deadline has come.
  bool TakeItems(SteadyTime deadline, std::vector<Item>& items);
  void StepItem(Item item, const Time& now, Turn& turn, std::vector<JobId>& changed);
  void StepEvent(const core::Event& event, const Time& now, Turn& turn,
                 std::vector<JobId>& changed);
  void HandOver(Turn turn);

  const Options options_;
  store::Store& store_;
  std::unique_ptr<core::Core> core_;  // the core thread's

  mutable absl::Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime turn_started_ ABSL_GUARDED_BY(mutex_) = SteadyTime::Infinite();

  absl::Mutex commit_mutex_;
  std::vector<Turn> pending_ ABSL_GUARDED_BY(commit_mutex_);
  // Turns handed over and not yet released, those under way included.
  size_t outstanding_ ABSL_GUARDED_BY(commit_mutex_) = 0;
  bool core_ended_ ABSL_GUARDED_BY(commit_mutex_) = false;
  bool commit_failed_ ABSL_GUARDED_BY(commit_mutex_) = false;

  std::thread core_thread_;
  std::thread commit_thread_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_CORE_LOOP_H_
