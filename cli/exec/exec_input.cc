#include "cli/exec/exec_input.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

namespace muster::cli {
namespace {

constexpr size_t kReadBytes = 16 << 10;

}  // namespace

ExecInputPump::ExecInputPump(ExecStream& stream, WindowWatcher* window)
    : stream_(stream),
      window_(window),
      stop_(eventfd(0, EFD_CLOEXEC)),
      thread_([this] { Run(); }) {}

ExecInputPump::~ExecInputPump() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(stop_, &one, sizeof(one));
  thread_.join();
  close(stop_);
}

void ExecInputPump::Run() {
  if (window_ != nullptr && !SendSize()) return;
  bool ended = false;
  while (true) {
    // A negative descriptor is ignored.
    pollfd polled[] = {{stop_, POLLIN, 0},
                       {ended ? -1 : STDIN_FILENO, POLLIN, 0},
                       {window_ == nullptr ? -1 : window_->fd(), POLLIN, 0}};
    if (poll(polled, 3, -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    if (polled[1].revents != 0 && !SendInput(ended)) return;
    if (polled[2].revents != 0) {
      window_->Clear();
      if (!SendSize()) return;
    }
  }
}

bool ExecInputPump::SendInput(bool& ended) {
  char buffer[kReadBytes];
  const ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  v1::ExecInput input;
  if (n > 0) {
    input.set_stdin_data(buffer, static_cast<size_t>(n));
  } else {
    ended = true;
    input.set_stdin_end(true);
  }
  return stream_.Write(input);
}

bool ExecInputPump::SendSize() {
  const std::optional<v1::ExecInput::Size> size = WindowSize();
  if (!size.has_value()) return true;
  v1::ExecInput input;
  *input.mutable_size() = *size;
  return stream_.Write(input);
}

}  // namespace muster::cli
