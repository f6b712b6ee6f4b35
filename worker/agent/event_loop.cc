#include "worker/agent/event_loop.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "absl/synchronization/notification.h"
#include "common/time/now.h"

namespace muster::agent {

EventLoop::EventLoop(const std::string& name)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = wake_;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event);
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

EventLoop::~EventLoop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  Post([] {});
  thread_.join();
  close(wake_);
  close(epoll_);
}

void EventLoop::Post(Closure closure) {
  absl::MutexLock lock(&mutex_);
  posted_.push_back(std::move(closure));
  if (posted_.size() > 1) return;  // already woken
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_, &one, sizeof(one));
}

void EventLoop::RunAndWait(Closure closure) {
  absl::Notification done;
  Post([&] {
    closure();
    done.Notify();
  });
  done.WaitForNotification();
}

void EventLoop::Watch(int fd, Closure on_readable) { Add(fd, EPOLLIN, std::move(on_readable)); }

void EventLoop::WatchWritable(int fd, Closure on_writable) {
  Add(fd, EPOLLOUT, std::move(on_writable));
}

void EventLoop::Add(int fd, uint32_t events, Closure closure) {
  watched_[fd] = std::make_shared<Closure>(std::move(closure));
  epoll_event event = {};
  event.events = events;
  event.data.fd = fd;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

void EventLoop::Unwatch(int fd) {
  if (watched_.erase(fd) > 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::RunAfter(absl::Duration delay, Closure closure) {
  const TimerId id = next_timer_++;
  const SteadyTime time = Now().steady + delay;
  timers_[{time, id}] = std::move(closure);
  timer_times_[id] = time;
  return id;
}

void EventLoop::Cancel(TimerId timer) {
  const auto it = timer_times_.find(timer);
  if (it == timer_times_.end()) return;
  timers_.erase({it->second, timer});
  timer_times_.erase(it);
}

int EventLoop::WaitMilliseconds() const {
  if (timers_.empty()) return -1;
  const absl::Duration left = timers_.begin()->first.first - Now().steady;
  const absl::Duration bounded = std::clamp(left, absl::ZeroDuration(), absl::Hours(1));
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(bounded, absl::Milliseconds(1))));
}

void EventLoop::Run() {
  while (true) {
    epoll_event events[64];
    const int n = epoll_wait(epoll_, events, 64, WaitMilliseconds());
    RunPosted();
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) return;
    }
    RunDueTimers();
    for (int i = 0; i < n; ++i) {
      const auto it = watched_.find(events[i].data.fd);
      if (it == watched_.end()) continue;  // unwatched by an earlier callback
      const std::shared_ptr<Closure> closure = it->second;
      (*closure)();
    }
  }
}

void EventLoop::RunPosted() {
  std::vector<Closure> closures;
  {
    absl::MutexLock lock(&mutex_);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(wake_, &count, sizeof(count));
    closures.swap(posted_);
  }
  for (const Closure& closure : closures) closure();
}

void EventLoop::RunDueTimers() {
  const SteadyTime now = Now().steady;
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    const auto first = timers_.begin();
    const Closure closure = std::move(first->second);
    timer_times_.erase(first->first.second);
    timers_.erase(first);
    closure();
  }
}

}  // namespace muster::agent
