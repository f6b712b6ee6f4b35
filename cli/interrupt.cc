#include "cli/interrupt.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

namespace muster::cli {

RunInterrupt::RunInterrupt(Console& console, Stopper& stopper, std::function<void()> cancel)
    : console_(console),
      stopper_(stopper),
      cancel_(std::move(cancel)),
      end_fd_(eventfd(0, EFD_CLOEXEC)),
      watcher_(std::make_unique<SignalWatcher>([this](int signal) { OnSignal(signal); })) {}

RunInterrupt::~RunInterrupt() {
  watcher_.reset();
  eventfd_write(end_fd_, 1);
  if (ask_.joinable()) ask_.join();
  close(end_fd_);
}

bool RunInterrupt::interrupted() const {
  absl::MutexLock lock(&mutex_);
  return interrupted_;
}

void RunInterrupt::OnSignal(int signal) {
  if (std::exchange(signalled_, true)) {
    Detach();
  } else if (signal == SIGINT && console_.interactive()) {
    ask_ = std::thread([this] { Ask(); });
  } else {
    console_.Note("interrupted; cancelling the job (again: stop waiting for it)");
    Cancel();
  }
}

void RunInterrupt::Ask() {
  console_.ClearStatus();
  console_.Note(
      "interrupted: c cancels the job, d detaches from it and lets it run, Enter goes on");
  pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {end_fd_, POLLIN, 0}};
  while (poll(fds, 2, -1) < 0) {
  }
  if (fds[1].revents != 0) return;
  char answer[256];
  const ssize_t size = read(STDIN_FILENO, answer, sizeof(answer));
  if (size > 0 && (answer[0] == 'c' || answer[0] == 'C')) return Cancel();
  // At the end of input nobody is there to go on for.
  if (size <= 0 || answer[0] == 'd' || answer[0] == 'D') return Detach();
  console_.Note("going on; Ctrl-C again detaches");
}

void RunInterrupt::Cancel() {
  {
    absl::MutexLock lock(&mutex_);
    interrupted_ = true;
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
