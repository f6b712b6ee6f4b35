// The local terminal of a command that runs in a remote one.
#ifndef MUSTER_CLI_EXEC_TERMINAL_H_
#define MUSTER_CLI_EXEC_TERMINAL_H_

#include <termios.h>

#include <optional>

#include "proto/muster/v1/cluster.pb.h"

namespace muster::cli {

// Makes the terminal on stdin pass all keys on unchanged, until this object is destroyed. Has no
// effect if stdin is not a terminal.
class RawTerminal {
 public:
  RawTerminal();
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

 private:
  std::optional<termios> before_;
};

// Reports changes of the terminal's size. Must be created before any other thread, because it
// blocks SIGWINCH.
class WindowWatcher {
 public:
  WindowWatcher();
  ~WindowWatcher();
  WindowWatcher(const WindowWatcher&) = delete;
  WindowWatcher& operator=(const WindowWatcher&) = delete;

  // Readable after a change, until Clear.
  int fd() const { return fd_; }
  void Clear();

 private:
  int fd_ = -1;
};

// The size of the terminal on stdout; nothing if it is not one.
std::optional<v1::ExecInput::Size> WindowSize();

}  // namespace muster::cli

#endif  // MUSTER_CLI_EXEC_TERMINAL_H_
