#include "worker/shim/rank/rank_tree.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/process/exit_code.h"
#include "worker/shim/clock.h"
#include "worker/shim/process_tree.h"

namespace muster::shim {
namespace {

constexpr int kQuickPasses = 100;  // over children that replace each other

}  // namespace

RankTree::RankTree(const Instructions& instructions, std::function<void(pid_t pid)> on_reaped)
    : instructions_(instructions), on_reaped_(std::move(on_reaped)), cgroup_(instructions.cgroup) {}

bool RankTree::Open() {
  if (instructions_.mark != 0 && !SetMark(instructions_.mark)) return false;
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return false;
  oom_kills_before_ = OomKillCount();
  grace_timer_ = OwnedFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  return grace_timer_.get() >= 0;
}

pid_t RankTree::Fork() {
  cgroup_made_ = !instructions_.cgroup.empty() && cgroup_.Make();
  const bool limited = cgroup_.Limit(instructions_.limits);
  const pid_t pid = !limited ? -1 : cgroup_made_ ? cgroup_.Fork() : fork();
  if (pid < 0) SetNotStarted(limited ? "fork" : "limit the rank's group");
  record_.pid = std::max<pid_t>(pid, 0);
  return pid;
}

void RankTree::SetNotStarted(const std::string& step) {
  record_.exec_errno = errno;
  record_.exec_error = step + ": " + std::strerror(record_.exec_errno);
  record_.exit_code = kExitCannotExecute;
  main_exited_ = no_children_ = true;
}

void RankTree::Reap() {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) {
      no_children_ = pid < 0 && errno == ECHILD;
      return;
    }
    on_reaped_(pid);
    if (pid != record_.pid || main_exited_) continue;
    main_exited_ = true;
    record_.time_unix_ms = WallMicros() / 1000;
    if (WIFEXITED(status)) record_.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) record_.signal = WTERMSIG(status);
  }
}

void RankTree::Stop(int64_t grace_ms, int signal) {
  // A stop after the rank has exited by itself did not cause the exit.
  if (!main_exited_) record_.stopped = true;
  const int64_t deadline = MonotonicMs() + grace_ms;
  const bool first = !stop_deadline_ms_.has_value();
  if (first && record_.pid > 0 && !main_exited_) {
    kill(-record_.pid, signal);
    // A hung rank may be stopped; it has to continue to handle the signal.
    if (signal == SIGABRT) kill(-record_.pid, SIGCONT);
  }
  if (first || deadline < *stop_deadline_ms_) {
    stop_deadline_ms_ = deadline;
    if (!kill_sent_) SetTimer(grace_timer_.get(), grace_ms);
  }
}

void RankTree::Expire() {
  if (!main_exited_) record_.lease_expired = killed_by_us_ = true;
  grace_over_ = true;
}

bool RankTree::OnGraceTimer() {
  if (!kill_sent_) grace_over_ = true;
  return kill_sent_;
}

bool RankTree::Settle() {
  // A wrapper script may exit while the program that it started still uses the grace period.
  const bool in_grace =
      main_exited_ && stop_deadline_ms_.has_value() && !grace_over_ && kill(-record_.pid, 0) == 0;
  if ((grace_over_ || main_exited_) && !no_children_ && !in_grace) {
    if (!main_exited_) killed_by_us_ = true;
    EndTree();
  }
  return main_exited_ && no_children_;
}

void RankTree::EndTree() {
  if (!std::exchange(kill_sent_, true))
    SetTimer(grace_timer_.get(), instructions_.kill_patience_ms);
  // If the kernel kills the whole group at once, only processes that left the group remain.
  if (cgroup_made_) cgroup_.Kill();
  KillDescendants(getpid());
  Reap();
  for (int pass = 0; pass < kQuickPasses && !no_children_; ++pass) {
    if (!KillChildren()) return;
    Reap();
  }
}

void RankTree::Finish() {
  if (record_.time_unix_ms == 0) record_.time_unix_ms = WallMicros() / 1000;
  if (record_.signal == SIGKILL && !killed_by_us_) {
    std::optional<uint64_t> kills;
    if (cgroup_made_) kills = cgroup_.OomKills();
    record_.out_of_memory =
        kills.has_value() ? *kills > 0
                          : oom_kills_before_.has_value() && OomKillCount() > oom_kills_before_;
  }
  if (cgroup_made_) cgroup_.Remove();
}

}  // namespace muster::shim
