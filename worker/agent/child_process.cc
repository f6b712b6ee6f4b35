#include "worker/agent/child_process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/exit_code.h"
#include "common/status.h"

namespace muster::agent {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

absl::StatusOr<pid_t> StartChild(const ChildProgram& program) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (size_t i = 0; i < program.descriptors.size(); ++i) {
    posix_spawn_file_actions_adddup2(&actions, program.descriptors[i], static_cast<int>(i));
  }
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const std::vector<char*> arguments = Pointers(program.command);
  const std::vector<char*> variables = Pointers(program.environment);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, arguments[0], &actions, &attributes, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("start ", program.command[0]));
  return pid;
}

void ReapOnExit(EventLoop& loop, pid_t child, std::function<void(int exit_code)> on_exit) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  loop.Watch(pidfd, [&loop, pidfd, on_exit = std::move(on_exit)] {
    siginfo_t info = {};
    waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG);
    loop.Unwatch(pidfd);
    close(pidfd);
    on_exit(info.si_code == CLD_EXITED ? info.si_status : kExitSignal + info.si_status);
  });
}

}  // namespace muster::agent
