#include "worker/mpi/rank_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/exit_code.h"
#include "common/now.h"
#include "common/status.h"
#include "worker/mpi/child_program.h"
#include "worker/mpi/handover.h"

namespace muster::mpi {
namespace {

// How often delays are checked while one of them runs.
constexpr absl::Duration kCheckInterval = absl::Milliseconds(50);

// Signals that ask the rank to end: any stop signal of a job, and SIGABRT for the stacks of a hung
// rank.
constexpr int kEndSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGABRT};

bool Succeeded(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }

RankEnd EndOf(int status) {
  RankEnd end;
  if (WIFSIGNALED(status)) {
    end.signal = WTERMSIG(status);
  } else {
    end.exit_code = WEXITSTATUS(status);
  }
  return end;
}

std::string Describe(int status) {
  return WIFSIGNALED(status) ? absl::StrCat("signal ", WTERMSIG(status))
                             : absl::StrCat("exit code ", WEXITSTATUS(status));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankProcess>> RankProcess::Create(RankOptions options) {
  std::unique_ptr<RankProcess> process(new RankProcess(std::move(options)));
  ASSIGN_OR_RETURN(process->listener_,
                   ListenForProxy(process->options_.node.directory, process->options_.local_rank));
  return process;
}

RankProcess::~RankProcess() {
  for (const int fd : {listener_, proxy_, signals_}) {
    if (fd >= 0) close(fd);
  }
}

RankEnd RankProcess::Run(const std::optional<OpenMpiDaemon>& daemon) {
  if (!OpenSignals()) {
    return {.exit_code = kExitFailure,
            .error = std::string(ErrnoStatus(errno, "signalfd").message())};
  }
  daemon_ = daemon;
  if (daemon_.has_value()) {
    const StartedChild child =
        StartChild(daemon_->command, DaemonEnvironment(options_.environment, options_.node), true);
    if (child.pid == 0) return {.exit_code = child.exit_code, .error = child.error};
    daemon_pid_ = child.pid;
  }
  while (true) {
    EndProgramIfDue();
    if (const std::optional<RankEnd> end = End()) return *end;
    const bool delayed =
        ends_since_.has_value() || daemon_status_.has_value() || program_status_.has_value();
    Wait(delayed ? kCheckInterval : absl::InfiniteDuration());
  }
}

bool RankProcess::OpenSignals() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  for (const int signal : kEndSignals) sigaddset(&mask, signal);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  signals_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  return signals_ >= 0;
}

void RankProcess::Wait(absl::Duration most) {
  pollfd fds[] = {{signals_, POLLIN, 0}, {proxy_ >= 0 ? proxy_ : listener_, POLLIN, 0}};
  const int timeout_ms =
      most == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(most));
  if (poll(fds, 2, timeout_ms) <= 0) return;
  // The proxy first: it may have announced the end that is about to be reaped.
  if (fds[1].revents != 0) proxy_ >= 0 ? ReadProxy() : Accept();
  if (fds[0].revents != 0) ReadSignals();
}

void RankProcess::ReadSignals() {
  signalfd_siginfo info = {};
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) stopping_ = true;
  }
  Reap();
}

void RankProcess::Reap() {
  int status = 0;
  while (true) {
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    if (pid == daemon_pid_) {
      daemon_status_ = status;
      daemon_ended_ = SteadyNow();
    } else if (pid == program_pid_) {
      program_status_ = status;
      program_ended_ = SteadyNow();
      // A proxy that has ended does not need it.
      if (proxy_ >= 0) SendWaitStatus(proxy_, status).IgnoreError();
    }
  }
}

void RankProcess::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  const absl::StatusOr<Environment> launched = ReceiveEnvironment(fd);
  if (!launched.ok()) {
    close(fd);
    return;
  }
  proxy_ = fd;
  close(std::exchange(listener_, -1));
  const StartedChild child =
      StartChild(options_.command,
                 ProgramEnvironment(options_.environment, *launched, options_.node,
                                    options_.command, options_.oversubscribed),
                 /*own_group=*/false);
  program_pid_ = child.pid;
  if (child.pid != 0) return;
  program_error_ = child.error;
  program_status_ = W_EXITCODE(child.exit_code, 0);
  program_ended_ = SteadyNow();
  SendWaitStatus(proxy_, *program_status_).IgnoreError();
}

void RankProcess::ReadProxy() {
  char bytes[16];
  const ssize_t n = recv(proxy_, bytes, sizeof(bytes), 0);
  if (n < 0 && errno == EINTR) return;
  OnProxyEnds();
  if (n <= 0) close(std::exchange(proxy_, -1));
}

void RankProcess::OnProxyEnds() {
  if (!ends_since_.has_value() && !program_status_.has_value()) ends_since_ = SteadyNow();
}

void RankProcess::EndProgramIfDue() {
  // A program that the worker stops has its grace period.
  if (!ends_since_.has_value() || program_pid_ == 0 || program_status_.has_value() || stopping_) {
    return;
  }
  const absl::Duration passed = SteadyNow() - *ends_since_;
  if (passed >= options_.abort_delay && !std::exchange(terminated_, true)) {
    kill(program_pid_, SIGTERM);
  }
  if (passed >= options_.abort_delay + options_.kill_delay && !std::exchange(killed_, true)) {
    kill(program_pid_, SIGKILL);
  }
}

bool RankProcess::EndedByOpenMpi() const {
  return terminated_ ||
         (WIFEXITED(*program_status_) && WEXITSTATUS(*program_status_) == kLostDaemonExitCode);
}

RankEnd RankProcess::DaemonFailure(const std::string& consequence) const {
  RankEnd end = EndOf(*daemon_status_);
  if (end.exit_code == 0 && end.signal == 0) end.exit_code = kExitFailure;
  end.error = absl::StrCat(daemon_->name, " ended with ", Describe(*daemon_status_), consequence);
  return end;
}

std::optional<RankEnd> RankProcess::EndAfter(SteadyTime since, const RankEnd& end) const {
  const bool knows = daemon_.has_value() && daemon_->is_mpirun;
  const absl::Duration delay = knows ? options_.failure_delay / 2 : options_.failure_delay;
  if (SteadyNow() - since < delay) return std::nullopt;
  return end;
}

std::optional<RankEnd> RankProcess::End() const {
  const bool daemon_runs = daemon_pid_ != 0 && !daemon_status_.has_value();
  if (!program_status_.has_value()) {
    if (program_pid_ != 0) return std::nullopt;
    if (stopping_) return RankEnd{.signal = options_.stop_signal};
    if (!daemon_status_.has_value()) return std::nullopt;
    const RankEnd failure = DaemonFailure(" before it started the rank; see the log of rank 0");
    // mpirun has not started it on any node.
    if (daemon_->is_mpirun) return failure;
    return EndAfter(daemon_ended_, failure);
  }
  RankEnd own = EndOf(*program_status_);
  own.error = program_error_;
  if (stopping_) {
    // The programs of the node's other ranks may still need the daemon in their grace period.
    if (daemon_runs) return std::nullopt;
    return own;
  }
  if (Succeeded(*program_status_)) {
    if (daemon_runs) return std::nullopt;
    if (daemon_pid_ == 0 || Succeeded(*daemon_status_)) return own;
    return EndAfter(daemon_ended_, DaemonFailure(" after the rank's program had succeeded"));
  }
  if (!EndedByOpenMpi()) return own;
  if (daemon_status_.has_value() && !Succeeded(*daemon_status_)) {
    return EndAfter(daemon_ended_, DaemonFailure("; see the log of rank 0"));
  }
  own.error = "Open MPI ended the rank's program; see the log of rank 0";
  return EndAfter(program_ended_, own);
}

}  // namespace muster::mpi
