// Runs a command beside a rank: with its user, environment, working directory, control group and
// CPUs.
#ifndef MUSTER_WORKER_SHIM_COMPANION_H_
#define MUSTER_WORKER_SHIM_COMPANION_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "worker/shim/protocol.h"

namespace muster::shim {

// The first argument with which the worker starts a companion process:
// `muster-shim exec DIRECTORY TERM COMMAND…`, with the command's standard streams as descriptors 0
// to 2 and a control pipe as kControlFd. DIRECTORY is the rank's. TERM is empty if the streams are
// not a terminal.
inline constexpr char kCompanionWord[] = "exec";

// The parent and reaper of the command's processes. Each byte on the control pipe is a signal for
// the command's process group. When the pipe is closed, or when the command has exited, all of its
// processes are killed. Must be used in a process without other threads and children.
class Companion {
 public:
  // `term`: the value of TERM; empty if the standard streams are not a terminal.
  Companion(Instructions rank, std::string term, std::vector<std::string> command)
      : rank_(std::move(rank)), term_(std::move(term)), command_(std::move(command)) {}

  // Returns the command's exit code once no process of it is left; 128+n for signal n.
  int Run();

 private:
  [[noreturn]] void BecomeCommand();
  void ReadControl();
  void Reap();
  void KillAll();

  const Instructions rank_;
  const std::string term_;
  const std::vector<std::string> command_;
  pid_t pid_ = -1;
  bool killing_ = false;
  bool no_children_ = false;
  std::optional<int> exit_code_;  // once the command has exited
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_COMPANION_H_
