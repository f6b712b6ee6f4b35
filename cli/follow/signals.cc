#include "cli/follow/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <utility>

namespace muster::cli {
namespace {

// The pipe that the handler writes to; a handler can only reach global state.
std::atomic<int> signal_pipe = -1;

void WriteByte(int fd, unsigned char byte) {
  while (write(fd, &byte, 1) < 0 && errno == EINTR) {
  }
}

void OnSignal(int signal) {
  const int saved_errno = errno;
  WriteByte(signal_pipe.load(), static_cast<unsigned char>(signal));
  errno = saved_errno;
}

}  // namespace

void Stopper::Stop() {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return;
  stopped_ = true;
  changed_.SignalAll();
  for (const auto& callback : callbacks_) callback.second();
}

bool Stopper::stopped() const {
  absl::MutexLock lock(&mutex_);
  return stopped_;
}

bool Stopper::SleepFor(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  return !changed_.WaitFor(&mutex_, duration, [this] {
    mutex_.AssertHeld();
    return stopped_;
  });
}

Stopper::Registration::Registration(Stopper& stopper, std::function<void()> on_stop)
    : stopper_(stopper) {
  absl::MutexLock lock(&stopper.mutex_);
  if (stopper.stopped_) on_stop();
  id_ = stopper.next_id_++;
  stopper.callbacks_.emplace(id_, std::move(on_stop));
}

Stopper::Registration::~Registration() {
  absl::MutexLock lock(&stopper_.mutex_);
  stopper_.callbacks_.erase(id_);
}

SignalWatcher::SignalWatcher(std::function<void(int)> on_signal)
    : on_signal_(std::move(on_signal)) {
  if (pipe2(pipe_, O_CLOEXEC) != 0) return;  // signals then keep their handlers
  signal_pipe.store(pipe_[1]);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before;
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    before_.emplace(signal, before);
    sigaction(signal, &action, nullptr);
  }
  thread_ = std::thread([this] { Run(); });
}

SignalWatcher::~SignalWatcher() {
  if (!thread_.joinable()) return;
  for (const auto& [signal, before] : before_) sigaction(signal, &before, nullptr);
  WriteByte(pipe_[1], 0);
  thread_.join();
  close(pipe_[0]);
  close(pipe_[1]);
}

void SignalWatcher::Run() {
  while (true) {
    unsigned char signal;
    const ssize_t size = read(pipe_[0], &signal, 1);
    if (size < 0 && errno == EINTR) continue;
    if (size != 1 || signal == 0) return;
    on_signal_(signal);
  }
}

}  // namespace muster::cli
