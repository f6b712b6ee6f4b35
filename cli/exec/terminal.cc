#include "cli/exec/terminal.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace muster::cli {

RawTerminal::RawTerminal() {
  termios settings;
  if (tcgetattr(STDIN_FILENO, &settings) != 0) return;
  before_ = settings;
  cfmakeraw(&settings);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &settings);
}

RawTerminal::~RawTerminal() {
  if (before_.has_value()) tcsetattr(STDIN_FILENO, TCSADRAIN, &*before_);
}

WindowWatcher::WindowWatcher() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGWINCH);
  pthread_sigmask(SIG_BLOCK, &mask, nullptr);
  fd_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
}

WindowWatcher::~WindowWatcher() { close(fd_); }

void WindowWatcher::Clear() {
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof(info)) == sizeof(info)) {
  }
}

std::optional<v1::ExecInput::Size> WindowSize() {
  winsize window;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) != 0) return std::nullopt;
  v1::ExecInput::Size size;
  size.set_rows(window.ws_row);
  size.set_columns(window.ws_col);
  return size;
}

}  // namespace muster::cli
