// A single-threaded event loop: runs file descriptor callbacks, timers and posted closures one at a
// time.
#ifndef MUSTER_WORKER_AGENT_EVENT_LOOP_H_
#define MUSTER_WORKER_AGENT_EVENT_LOOP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/time.h"

namespace muster::agent {

class EventLoop {
 public:
  using TimerId = uint64_t;
  using Closure = std::function<void()>;

  // `name` is the name of the thread, at most 15 characters.
  explicit EventLoop(const std::string& name);
  // Finishes the running closure; drops queued ones.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Queues the closure. Thread-safe; closures run in the order of the calls.
  void Post(Closure closure) ABSL_LOCKS_EXCLUDED(mutex_);
  // Runs the closure on the loop and waits for it. Thread-safe, but must not be called on the loop
  // itself.
  void RunAndWait(Closure closure);

  // The methods below must be called on the loop's thread.

  // Calls `on_readable` while `fd` is readable or has been closed by its peer.
  void Watch(int fd, Closure on_readable);
  // Calls `on_writable` while `fd` accepts data or is broken. A descriptor is watched either for
  // reading or for writing.
  void WatchWritable(int fd, Closure on_writable);
  void Unwatch(int fd);
  TimerId RunAfter(absl::Duration delay, Closure closure);
  void Cancel(TimerId timer);

 private:
  void Add(int fd, uint32_t events, Closure closure);
  void Run();
  void RunPosted() ABSL_LOCKS_EXCLUDED(mutex_);
  void RunDueTimers();
  int WaitMilliseconds() const;

  int epoll_ = -1;
  int wake_ = -1;
  absl::Mutex mutex_;
  std::vector<Closure> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  absl::flat_hash_map<int, std::shared_ptr<Closure>> watched_;
  std::map<std::pair<SteadyTime, TimerId>, Closure> timers_;
  absl::flat_hash_map<TimerId, SteadyTime> timer_times_;
  TimerId next_timer_ = 1;

  std::thread thread_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_EVENT_LOOP_H_
