#include "worker/shim/companion.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/process/exit_code.h"
#include "worker/shim/cgroup.h"
#include "worker/shim/credentials.h"
#include "worker/shim/process_tree.h"
#include "worker/shim/program.h"

namespace muster::shim {
namespace {

// Between two passes that kill processes, for those that have been forked meanwhile.
constexpr int kKillIntervalMs = 20;

}  // namespace

int Companion::Run() {
  if (rank_.mark != 0 && !SetMark(rank_.mark)) {
    std::fprintf(stderr, "muster exec: set the limit of file locks to %llu: %s\n",
                 static_cast<unsigned long long>(rank_.mark), std::strerror(errno));
    return kExitNotAllowed;
  }
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  fcntl(kControlFd, F_SETFD, FD_CLOEXEC);
  fcntl(kControlFd, F_SETFL, O_NONBLOCK);
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, signal);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  const int signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);

  pid_ = fork();
  if (pid_ == 0) BecomeCommand();
  if (pid_ < 0) {
    std::fprintf(stderr, "muster exec: fork: %s\n", std::strerror(errno));
    return kExitCannotExecute;
  }
  while (!no_children_) {
    // A negative descriptor is ignored.
    pollfd polled[] = {{signals, POLLIN, 0}, {killing_ ? -1 : kControlFd, POLLIN, 0}};
    poll(polled, 2, killing_ ? kKillIntervalMs : -1);
    if (polled[1].revents != 0) ReadControl();
    signalfd_siginfo info = {};
    while (read(signals, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) killing_ = true;
    }
    Reap();
    if (exit_code_.has_value()) killing_ = true;
    if (killing_ && !no_children_) KillAll();
  }
  return exit_code_.value_or(kExitSignal + SIGKILL);
}

void Companion::BecomeCommand() {
  const pid_t parent = getppid();
  // A process group of its own, for signals; with a terminal, also its controlling process.
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitCannotExecute);
  if (!term_.empty()) ioctl(STDIN_FILENO, TIOCSCTTY, 0);
  Cgroup(rank_.cgroup).Enter();
  ResetSignals();
  BindToCpus(rank_.cpus);
  if (rank_.user.has_value()) {
    GiveStreams(*rank_.user);
    const int error = DropPrivileges(*rank_.user);
    if (error != 0) {
      std::fprintf(stderr, "muster exec: cannot run as the user with uid %u: %s\n", rank_.user->uid,
                   std::strerror(error));
      _exit(kExitNotAllowed);
    }
  }
  if (!rank_.workdir.empty() && chdir(rank_.workdir.c_str()) != 0) {
    std::fprintf(stderr, "muster exec: %s: %s\n", rank_.workdir.c_str(), std::strerror(errno));
    _exit(kExitCannotExecute);
  }
  std::vector<std::string> environment;
  for (const std::string& entry : rank_.environment) {
    if (term_.empty() || entry.rfind("TERM=", 0) != 0) environment.push_back(entry);
  }
  if (!term_.empty()) environment.push_back("TERM=" + term_);
  ExecProgram(command_, environment);
  const int error = errno;
  std::fprintf(stderr, "muster exec: %s: %s\n", command_[0].c_str(), std::strerror(error));
  _exit(error == ENOENT ? kExitNotFound : kExitCannotExecute);
}

void Companion::ReadControl() {
  unsigned char bytes[64];
  const ssize_t n = read(kControlFd, bytes, sizeof(bytes));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    killing_ = true;
    return;
  }
  for (ssize_t i = 0; i < n; ++i) kill(-pid_, bytes[i]);
}

void Companion::Reap() {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) {
      no_children_ = pid < 0 && errno == ECHILD;
      return;
    }
    if (pid != pid_) continue;
    exit_code_ = WIFSIGNALED(status) ? kExitSignal + WTERMSIG(status) : WEXITSTATUS(status);
  }
}

void Companion::KillAll() {
  KillDescendants(getpid());
  Reap();
}

}  // namespace muster::shim
