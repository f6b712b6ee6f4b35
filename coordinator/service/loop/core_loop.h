// Runs the core: one thread steps it, and a second one commits its writes. Effects leave the
// process only when nothing can invalidate them any more.
//
// A turn takes the queued items, steps the core with them, and yields writes and releases (effects
// and the answers of queries). Turns are released in the order in which they were taken, each after
// its own writes are on disk. A turn without writes is therefore released at once when no commit is
// outstanding, and otherwise after the commits before it, because its results may depend on them.
// Turns that queue up behind a commit share the next one. Releases never run concurrently; they run
// on either thread and must not block.
//
// A failed commit ends the process: memory is never ahead of disk.
#ifndef MUSTER_COORDINATOR_SERVICE_LOOP_CORE_LOOP_H_
#define MUSTER_COORDINATOR_SERVICE_LOOP_CORE_LOOP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/ids.h"
#include "common/time/now.h"
#include "common/time/steady_cond_var.h"
#include "common/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/event.h"
#include "coordinator/store/store.h"

namespace muster::service {

using Release = absl::AnyInvocable<void()>;

absl::Duration ThreadCpuTime();

// Observes every turn, on the core thread.
class TurnObserver {
 public:
  virtual ~TurnObserver() = default;
  // Called after the steps of a turn; `changed` holds each changed job once. Entries added to
  // `releases` are released with the turn. Returns the latest time at which it must be called
  // again.
  virtual SteadyTime AfterTurn(core::Core& core, absl::Span<const JobId> changed, const Time& now,
                               std::vector<Release>& releases) = 0;
  // Reports the delay of the loop: of an event since its arrival, or of a deadline since its time.
  virtual void OnLag(absl::Duration lag) = 0;
};

class CoreLoop {
 public:
  struct Options {
    std::function<Time()> clock = Now;
    // CPU time that the calling thread has used.
    std::function<absl::Duration()> cpu_clock = ThreadCpuTime;
    // Receives effects, as a release: their writes are already committed.
    std::function<void(core::Effects)> deliver;
    // Called on the commit thread after a failed commit, when nothing can be released any more.
    // Expected to end the process.
    std::function<void(const absl::Status&)> on_commit_failure;
    TurnObserver* observer = nullptr;  // outlives the loop
    // Whether a worker's session is open. Hellos of sessions that are not are dropped: a busy core
    // would otherwise repeat the work for each attempt of a worker that gave up waiting.
    std::function<bool(SessionId)> is_open = [](SessionId) { return true; };
  };
  // Runs on the core thread and returns a release, or an empty one.
  using Query = absl::AnyInvocable<Release(core::Core&, const Time&)>;

  // `core` must be loaded. `store` must outlive the loop.
  CoreLoop(std::unique_ptr<core::Core> core, store::Store& store, Options options);
  // Calls Stop.
  ~CoreLoop();

  void Start();
  // Steps, commits and releases everything that was queued before the call, then returns.
  void Stop();

  // Thread-safe. Returns false, and drops the argument, when the loop is stopping. `taken` runs on
  // the core thread when the event has left the queue: a caller that waits for it before pushing
  // the next event has at most one event in the queue.
  bool Push(core::Event event, absl::AnyInvocable<void()> taken = nullptr);
  // Thread-safe. Queues a query. Returns false, and drops it, when the loop is stopping.
  bool PushQuery(Query query);
  // Makes the loop read the clock again; for manual clocks in tests. Thread-safe.
  void Wake();

  // The age of the current turn or of the oldest waiting event. Thread-safe.
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
    uint64_t bytes = 0;  // of the writes
  };

  bool Enqueue(Item item);
  void RunCore();
  void RunCommitter();
  // Waits for items or the deadline; `items` is empty when the deadline came first. `idle`: how
  // long there was nothing to do.
  bool TakeItems(SteadyTime deadline, std::vector<Item>& items, absl::Duration& idle);
  // Drops Hellos of sessions that have ended.
  void DropEndedSessions(std::vector<Item>& items) const;
  // Whether an item waits that was queued by then.
  bool HasItemOf(SteadyTime time) const;
  // `more`: see Core::Step.
  void StepItem(Item item, const Time& now, bool more, Turn& turn, std::set<JobId>& changed);
  void StepEvent(const core::Event& event, const Time& now, bool more, Turn& turn,
                 std::set<JobId>& changed);
  // The store's space, without what the turns that wait for the disk will take.
  store::Space MeasureSpace();
  // Returns how long it waited for the disk.
  absl::Duration HandOver(Turn turn);

  const Options options_;
  store::Store& store_;
  std::unique_ptr<core::Core> core_;  // core thread only

  mutable absl::Mutex mutex_;
  SteadyCondVar changed_;  // what the core thread waits for
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime turn_started_ ABSL_GUARDED_BY(mutex_) = SteadyTime::Infinite();

  absl::Mutex commit_mutex_;
  std::vector<Turn> pending_ ABSL_GUARDED_BY(commit_mutex_);
  // Turns handed over and not yet released, including those in progress.
  size_t outstanding_ ABSL_GUARDED_BY(commit_mutex_) = 0;
  uint64_t outstanding_bytes_ ABSL_GUARDED_BY(commit_mutex_) = 0;
  bool core_ended_ ABSL_GUARDED_BY(commit_mutex_) = false;
  bool commit_failed_ ABSL_GUARDED_BY(commit_mutex_) = false;

  std::thread core_thread_;
  std::thread commit_thread_;
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_LOOP_CORE_LOOP_H_
