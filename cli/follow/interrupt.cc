#include "cli/follow/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

namespace muster::cli {

RunInterrupt::RunInterrupt(Console& console, Stopper& stopper, bool may_detach,
                           std::function<void()> cancel)
    : console_(console),
      stopper_(stopper),
      may_detach_(may_detach),
      cancel_(std::move(cancel)),
      end_fd_(eventfd(0, EFD_CLOEXEC)),
      watcher_(std::make_unique<SignalWatcher>([this](int signal) { OnSignal(signal); })) {}

RunInterrupt::~RunInterrupt() {
  watcher_.reset();
  EndAsking();
  close(end_fd_);
}

bool RunInterrupt::interrupted() const {
  absl::MutexLock lock(&mutex_);
  return interrupted_;
}

void RunInterrupt::OnSignal(int signal) {
  bool cancelled, asking;
  {
    absl::MutexLock lock(&mutex_);
    cancelled = cancelled_;
    asking = asking_;
  }
  if (cancelled || (may_detach_ && signal != SIGINT)) return Detach();
  if (asking) EndAsking();
  if (!asking && may_detach_ && console_.interactive()) return StartAsking();
  console_.EraseEcho();
  console_.Note("interrupted; cancelling the job (again: stop waiting for its end)");
  Cancel();
}

void RunInterrupt::StartAsking() {
  EndAsking();  // joins the thread of an earlier, answered question
  {
    absl::MutexLock lock(&mutex_);
    asking_ = true;
  }
  ask_ = std::thread([this] { Ask(); });
}

void RunInterrupt::EndAsking() {
  if (!ask_.joinable()) return;
  eventfd_write(end_fd_, 1);
  ask_.join();
  eventfd_t value;
  eventfd_read(end_fd_, &value);
}

void RunInterrupt::Ask() {
  console_.ClearStatus();
  console_.EraseEcho();
  console_.Note("interrupted: c cancels the job, d detaches, Enter continues");
  pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {end_fd_, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0) {
  }
  if (fds[1].revents != 0) return;
  char answer[256];
  const ssize_t size = read(STDIN_FILENO, answer, sizeof(answer));
  {
    absl::MutexLock lock(&mutex_);
    asking_ = false;
  }
  if (size > 0 && (answer[0] == 'c' || answer[0] == 'C')) return Cancel();
  // End of input: the user is gone.
  if (size <= 0 || answer[0] == 'd' || answer[0] == 'D') return Detach();
  console_.Note("continuing");
}

void RunInterrupt::Cancel() {
  {
    absl::MutexLock lock(&mutex_);
    interrupted_ = true;
    cancelled_ = true;
  }
  cancel_();
}

void RunInterrupt::Detach() {
  {
    absl::MutexLock lock(&mutex_);
    interrupted_ = true;
  }
  stopper_.Stop();
}

}  // namespace muster::cli
