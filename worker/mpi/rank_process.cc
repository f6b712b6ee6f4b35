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
#include "common/process/exit_code.h"
#include "common/status.h"
#include "common/time/now.h"
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

void RankProcess::Child::SetEnded(int wait_status) {
  status = wait_status;
  ended = SteadyNow();
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
    daemon_process_.pid = child.pid;
  }
  while (true) {
    EndProgramIfDue();
    if (const std::optional<RankEnd> end = End()) return *end;
    const bool delayed = ends_since_.has_value() || daemon_process_.status.has_value() ||
                         program_.status.has_value();
    Wait(delayed ? kCheckInterval : absl::InfiniteDuration());
  }
}

bool RankProcess::OpenSignals() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGCHLD);
  for (const int signal : kEndSignals) sigaddset(&mask, signal);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  signals_ = OwnedFd(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  return signals_.get() >= 0;
}

void RankProcess::Wait(absl::Duration most) {
  const bool has_proxy = proxy_.get() >= 0;
  pollfd fds[] = {{signals_.get(), POLLIN, 0},
                  {has_proxy ? proxy_.get() : listener_.get(), POLLIN, 0}};
  const int timeout_ms =
      most == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(most));
  if (poll(fds, 2, timeout_ms) <= 0) return;
  // The proxy first: it may have announced the end that is about to be reaped.
  if (fds[1].revents != 0) has_proxy ? ReadProxy() : Accept();
  if (fds[0].revents != 0) ReadSignals();
}

void RankProcess::ReadSignals() {
  signalfd_siginfo info = {};
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) stopping_ = true;
  }
  Reap();
}

void RankProcess::Reap() {
  int status = 0;
  while (true) {
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid <= 0) return;
    if (pid == daemon_process_.pid) {
      daemon_process_.SetEnded(status);
    } else if (pid == program_.pid) {
      program_.SetEnded(status);
      // A proxy that has ended does not need it.
      if (proxy_.get() >= 0) SendWaitStatus(proxy_.get(), status).IgnoreError();
    }
  }
}

void RankProcess::Accept() {
  OwnedFd proxy(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (proxy.get() < 0) return;
  const absl::StatusOr<Environment> launched = ReceiveEnvironment(proxy.get());
  if (!launched.ok()) return;
  proxy_ = std::move(proxy);
  listener_.Close();
  const StartedChild child =
      StartChild(options_.command,
                 ProgramEnvironment(options_.environment, *launched, options_.node,
                                    options_.command, options_.oversubscribed),
                 /*own_group=*/false);
  program_.pid = child.pid;
  if (child.pid != 0) return;
  program_error_ = child.error;
  program_.SetEnded(W_EXITCODE(child.exit_code, 0));
  SendWaitStatus(proxy_.get(), *program_.status).IgnoreError();
}

void RankProcess::ReadProxy() {
  char bytes[16];
  const ssize_t n = recv(proxy_.get(), bytes, sizeof(bytes), 0);
  if (n < 0 && errno == EINTR) return;
  if (!ends_since_.has_value() && !program_.status.has_value()) ends_since_ = SteadyNow();
  if (n <= 0) proxy_.Close();
}

void RankProcess::EndProgramIfDue() {
  // A program that the worker stops has its grace period.
  if (!ends_since_.has_value() || !program_.runs() || stopping_) return;
  const absl::Duration passed = SteadyNow() - *ends_since_;
  if (passed >= options_.abort_delay && !std::exchange(terminated_, true)) {
    kill(program_.pid, SIGTERM);
  }
  if (passed >= options_.abort_delay + options_.kill_delay && !std::exchange(killed_, true)) {
    kill(program_.pid, SIGKILL);
  }
}

bool RankProcess::EndedByOpenMpi() const {
  return terminated_ ||
         (WIFEXITED(*program_.status) && WEXITSTATUS(*program_.status) == kLostDaemonExitCode);
}

RankEnd RankProcess::DaemonFailure(const std::string& consequence) const {
  RankEnd end = EndOf(*daemon_process_.status);
  if (end.exit_code == 0 && end.signal == 0) end.exit_code = kExitFailure;
  end.error =
      absl::StrCat(daemon_->name, " ended with ", Describe(*daemon_process_.status), consequence);
  return end;
}

std::optional<RankEnd> RankProcess::EndAfter(SteadyTime since, const RankEnd& end) const {
  const bool knows = daemon_.has_value() && daemon_->is_mpirun;
  const absl::Duration delay = knows ? options_.failure_delay / 2 : options_.failure_delay;
  if (SteadyNow() - since < delay) return std::nullopt;
  return end;
}

std::optional<RankEnd> RankProcess::End() const {
  const bool daemon_runs = daemon_process_.runs();
  if (!program_.status.has_value()) {
    if (program_.pid != 0) return std::nullopt;
    if (stopping_) return RankEnd{.signal = options_.stop_signal};
    if (!daemon_process_.status.has_value()) return std::nullopt;
    const RankEnd failure = DaemonFailure(" before it started the rank; see the log of rank 0");
    // mpirun has not started it on any node.
    if (daemon_->is_mpirun) return failure;
    return EndAfter(daemon_process_.ended, failure);
  }
  RankEnd own = EndOf(*program_.status);
  own.error = program_error_;
  if (stopping_) {
    // The programs of the node's other ranks may still need the daemon in their grace period.
    if (daemon_runs) return std::nullopt;
    return own;
  }
  if (Succeeded(*program_.status)) {
    if (daemon_runs) return std::nullopt;
    if (daemon_process_.pid == 0 || Succeeded(*daemon_process_.status)) return own;
    return EndAfter(daemon_process_.ended,
                    DaemonFailure(" after the rank's program had succeeded"));
  }
  if (!EndedByOpenMpi()) return own;
  if (daemon_process_.status.has_value() && !Succeeded(*daemon_process_.status)) {
    return EndAfter(daemon_process_.ended, DaemonFailure("; see the log of rank 0"));
  }
  own.error = "Open MPI ended the rank's program; see the log of rank 0";
  return EndAfter(program_.ended, own);
}

}  // namespace muster::mpi
