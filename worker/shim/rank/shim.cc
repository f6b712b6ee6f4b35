#include "worker/shim/rank/shim.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

#include "common/exit_code.h"
#include "common/limits.h"
#include "worker/shim/clock.h"
#include "worker/shim/fields.h"
#include "worker/shim/process_tree.h"
#include "worker/shim/program.h"
#include "worker/shim/rank/exec.h"

namespace muster::shim {
namespace {

constexpr int kQuickPasses = 100;  // over children that replace each other
// How long a note waits for the end of the program's line.
constexpr int64_t kNoteDelayMs = 1000;
constexpr size_t kExitRecordBytes = limits::kStderrTailBytes + (8 << 10);

// Returns nothing for text that is not a whole, non-negative number.
std::optional<int64_t> ParseMs(std::string_view text) {
  int64_t ms = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, ms);
  if (error != std::errc() || stop != end || ms < 0) return std::nullopt;
  return ms;
}

}  // namespace

Shim::Shim(Instructions instructions, int control_fd)
    : instructions_(std::move(instructions)),
      cgroup_(instructions_.cgroup),
      hang_watch_(instructions_.hang_timeout_ms, MonotonicMs()),
      memory_watch_(instructions_.memory_interval_ms),
      workers_(control_fd, WorkerEvents()),
      output_(instructions_, OutputEvents()) {}

Shim::~Shim() {
  for (const int fd : {epoll_, signals_, grace_timer_, worker_away_timer_, note_timer_, hang_timer_,
                       memory_timer_, exec_result_}) {
    if (fd >= 0) close(fd);
  }
}

int Shim::Run() {
  if (!SetUp()) {
    record_.exec_errno = errno;
    record_.exec_error = std::string("shim: ") + std::strerror(errno);
    exec_known_ = main_exited_ = true;
    record_.exit_code = kExitCannotExecute;
    Finish();
    return 1;
  }
  if (fence_.HasPassed()) {  // a worker that was stopped launches what may run elsewhere by now
    record_.lease_expired = killed_by_us_ = true;
    record_.signal = SIGKILL;
    Finish();
    return 0;
  }
  StartRank();
  while (!Settle()) {
    epoll_event events[16];
    const int n = epoll_wait(epoll_, events, 16, -1);
    for (int i = 0; i < n; ++i) Dispatch(events[i].data.fd);
  }
  Finish();
  return 0;
}

bool Shim::SetUp() {
  if (instructions_.mark != 0 && !SetMark(instructions_.mark)) return false;
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return false;
  oom_kills_before_ = OomKillCount();
  // A limit of the size of files is reported as a failed write.
  signal(SIGXFSZ, SIG_IGN);

  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, signal);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  signals_ = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  grace_timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  worker_away_timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  note_timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  hang_timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  memory_timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  for (const int fd :
       {signals_, grace_timer_, worker_away_timer_, note_timer_, hang_timer_, memory_timer_}) {
    if (fd < 0 || !Watch(fd)) return false;
  }
  if (!fence_.Open() || !Watch(fence_.fd())) return false;
  fence_.SetDeadline(instructions_.lease_deadline_ms);
  SetTimer(hang_timer_, hang_watch_.interval_ms());
  SetTimer(memory_timer_, memory_watch_.first_ms());
  AwaitWorker();
  // Reserve space for the exit record, because the rank's log may fill the disk.
  return workers_.Open() && ReserveFor(kExitFile, kExitRecordBytes) && output_.Open();
}

bool Shim::Watch(int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) == 0;
}

void Shim::StartRank() {
  int out[2] = {-1, -1};
  int err[2] = {-1, -1};
  int report[2] = {-1, -1};
  const bool joined = instructions_.joined_output;
  const bool piped = pipe2(out, O_CLOEXEC) == 0 && (joined || pipe2(err, O_CLOEXEC) == 0) &&
                     pipe2(report, O_CLOEXEC) == 0;
  if (piped) pid_ = Fork();
  if (pid_ == 0) BecomeRank(out[1], joined ? out[1] : err[1], report[1]);
  if (pid_ < 0) {
    record_.exec_errno = errno;
    record_.exec_error =
        (limited_ ? "fork: " : "limit the rank's group: ") + std::string(std::strerror(errno));
    record_.exit_code = kExitCannotExecute;
    exec_known_ = main_exited_ = no_children_ = true;
    if (!piped) workers_.Broadcast(StateLine());  // otherwise at the end of the exec pipe
  }
  for (const int fd : {out[1], err[1], report[1]}) {
    if (fd >= 0) close(fd);
  }
  output_.SetPipes(out[0], err[0]);
  exec_result_ = report[0];
  record_.pid = std::max<pid_t>(pid_, 0);
  for (const int fd : {out[0], err[0], exec_result_}) {
    if (fd < 0) continue;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    Watch(fd);
  }
}

pid_t Shim::Fork() {
  cgroup_made_ = !instructions_.cgroup.empty() && cgroup_.Make();
  limited_ = cgroup_.Limit(instructions_.limits);
  if (!limited_) return -1;
  return cgroup_made_ ? cgroup_.Fork() : fork();
}

// Runs in the child. Not limited to async-signal-safe calls, because the shim has no threads.
void Shim::BecomeRank(int out, int err, int report) {
  const pid_t shim = getppid();
  setpgid(0, 0);
  // If the shim is killed, its rank must be killed, too.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Lets the shim's inspector read the stacks where Yama restricts ptrace to descendants.
  prctl(PR_SET_PTRACER, shim, 0, 0, 0);
  if (getppid() != shim) _exit(1);

  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  ResetSignals();
  BindToCpus(instructions_.cpus);

  const ExecFailure failure = Exec(instructions_);
  [[maybe_unused]] const ssize_t n = write(report, &failure, sizeof(failure));
  _exit(ExitCodeOf(failure));
}

void Shim::Dispatch(int fd) {
  if (fd == signals_) return ReadSignals();
  if (fd == exec_result_) return ReadExecResult();
  if (fd == fence_.fd()) return OnLeaseDeadline();
  if (fd == grace_timer_ || fd == worker_away_timer_ || fd == note_timer_ || fd == hang_timer_ ||
      fd == memory_timer_) {
    uint64_t expirations = 0;
    if (read(fd, &expirations, sizeof(expirations)) < 0)
      return;  // the timer was set again meanwhile
    if (fd == worker_away_timer_) return OnWorkerAwayTooLong();
    if (fd == note_timer_) return output_.WriteNotes();
    if (fd == hang_timer_) {
      SetTimer(hang_timer_, hang_watch_.interval_ms());
      return workers_.Broadcast(hang_watch_.OnTimer(MonotonicMs()));
    }
    if (fd == memory_timer_) {
      SetTimer(memory_timer_, memory_watch_.interval_ms());
      return workers_.Broadcast(memory_watch_.OnTimer(Cgroup(cgroup_made_ ? cgroup_.path() : "")));
    }
    if (kill_sent_) return OnUnkillable();
    grace_over_ = true;
    return;
  }
  output_.OnReadable(fd);
  workers_.OnReadable(fd);
}

WorkerSockets::Events Shim::WorkerEvents() {
  WorkerSockets::Events events;
  events.watch = [this](int fd) { return Watch(fd); };
  events.on_connected = [this] {
    SetTimer(worker_away_timer_, -1);
    return State();
  };
  events.on_command = [this](std::string_view command) { return Execute(command); };
  events.on_disconnected = [this] { AwaitWorker(); };
  return events;
}

RankOutput::Events Shim::OutputEvents() {
  RankOutput::Events events;
  events.on_output = [this] { workers_.Broadcast(hang_watch_.OnOutput(MonotonicMs())); };
  events.on_line = [this](std::string_view line) { workers_.Broadcast(line); };
  return events;
}

std::string_view Shim::Execute(std::string_view command) {
  constexpr std::string_view kStop = "stop ";
  constexpr std::string_view kAbort = "abort ";
  constexpr std::string_view kNote = "note ";
  constexpr std::string_view kLease = "lease ";
  if (command == "kill") {
    Stop(0, instructions_.stop_signal);
  } else if (command == "ping") {
    return "pong\n";
  } else if (command.substr(0, kNote.size()) == kNote) {
    if (!main_exited_ && output_.AddNote(command.substr(kNote.size()))) {
      SetTimer(note_timer_, kNoteDelayMs);
    }
  } else if (command == "active") {
    workers_.Broadcast(hang_watch_.OnOutput(MonotonicMs()));
  } else if (command == "inspect") {
    hang_watch_.Inspect(pid_, instructions_.user);
  } else if (command.substr(0, kLease.size()) == kLease) {
    const std::optional<int64_t> deadline_ms = ParseMs(command.substr(kLease.size()));
    if (deadline_ms.has_value()) fence_.SetDeadline(*deadline_ms);
  } else if (command.substr(0, kStop.size()) == kStop ||
             command.substr(0, kAbort.size()) == kAbort) {
    const int signal = command[0] == kAbort[0] ? SIGABRT : instructions_.stop_signal;
    const std::optional<int64_t> grace_ms = ParseMs(command.substr(command.find(' ') + 1));
    if (grace_ms.has_value()) Stop(*grace_ms, signal);
  }
  return "";
}

std::string Shim::State() {
  return StateLine() + hang_watch_.StateLine(MonotonicMs()) + memory_watch_.StateLine() +
         output_.StateLines();
}

std::string Shim::StateLine() const {
  if (!exec_known_) return "";
  const std::string unkillable = unkillable_ ? "unkillable\n" : "";
  if (record_.exec_errno == 0) return "started " + std::to_string(pid_) + "\n" + unkillable;
  return "exec-failed " + std::to_string(record_.exec_errno) + " " + record_.exec_error + "\n";
}

void Shim::ReadSignals() {
  signalfd_siginfo info = {};
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) {
      Reap();
    } else {
      Stop(instructions_.grace_ms, instructions_.stop_signal);
    }
  }
}

void Shim::ReadExecResult() {
  ExecFailure failure = {};
  const ssize_t n = read(exec_result_, &failure, sizeof(failure));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n == sizeof(failure)) {
    record_.exec_errno = failure.error;
    record_.exec_error = Describe(failure, instructions_);
    std::replace(record_.exec_error.begin(), record_.exec_error.end(), '\n', ' ');
  }
  close(exec_result_);
  exec_result_ = -1;
  exec_known_ = true;
  workers_.Broadcast(StateLine());
}

void Shim::Reap() {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) {
      no_children_ = pid < 0 && errno == ECHILD;
      return;
    }
    workers_.Broadcast(hang_watch_.OnReaped(pid));
    if (pid != pid_ || main_exited_) continue;
    main_exited_ = true;
    record_.time_unix_ms = WallMicros() / 1000;
    if (WIFEXITED(status)) record_.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) record_.signal = WTERMSIG(status);
  }
}

void Shim::Stop(int64_t grace_ms, int signal) {
  // A stop after the rank has exited by itself did not cause the exit.
  if (!main_exited_) record_.stopped = true;
  const int64_t deadline = MonotonicMs() + grace_ms;
  const bool first = !stop_deadline_ms_.has_value();
  if (first && pid_ > 0 && !main_exited_) {
    kill(-pid_, signal);
    // A hung rank may be stopped; it has to continue to handle the signal.
    if (signal == SIGABRT) kill(-pid_, SIGCONT);
  }
  if (first || deadline < *stop_deadline_ms_) {
    stop_deadline_ms_ = deadline;
    if (!kill_sent_) SetTimer(grace_timer_, grace_ms);
  }
}

void Shim::AwaitWorker() {
  if (workers_.connected() || fence_.has_deadline()) return;
  if (instructions_.failure_timeout_ms > 0) {
    SetTimer(worker_away_timer_, instructions_.failure_timeout_ms);
  }
}

void Shim::OnLeaseDeadline() {
  // A shim that was stopped or blocked may have later deadlines to read.
  workers_.ReadAll();
  if (!fence_.HasPassed()) return;
  fence_.SetDeadline(0);
  if (!main_exited_) record_.lease_expired = true;
  grace_over_ = true;
}

void Shim::OnWorkerAwayTooLong() {
  record_.abandoned = true;
  Stop(instructions_.grace_ms, instructions_.stop_signal);
}

bool Shim::Settle() {
  if (main_exited_ && exec_result_ >= 0) ReadExecResult();
  // A wrapper script may exit while the program that it started still uses the grace period.
  const bool in_grace =
      main_exited_ && stop_deadline_ms_.has_value() && !grace_over_ && kill(-pid_, 0) == 0;
  if ((grace_over_ || main_exited_) && !no_children_ && !in_grace) {
    if (!main_exited_) killed_by_us_ = true;
    EndTree();
  }
  return main_exited_ && no_children_;
}

void Shim::EndTree() {
  if (!std::exchange(kill_sent_, true)) SetTimer(grace_timer_, instructions_.kill_patience_ms);
  // If the kernel kills the whole group at once, only processes that left the group remain.
  if (cgroup_made_) cgroup_.Kill();
  KillDescendants(getpid());
  Reap();
  for (int pass = 0; pass < kQuickPasses && !no_children_; ++pass) {
    if (!KillChildren()) return;
    Reap();
  }
}

void Shim::OnUnkillable() {
  unkillable_ = true;
  workers_.Broadcast("unkillable\n");
}

void Shim::Finish() {
  output_.Finish();
  record_.lost_output = output_.Lost();
  record_.stderr_tail = output_.LastLines();
  if (record_.time_unix_ms == 0) record_.time_unix_ms = WallMicros() / 1000;
  if (record_.signal == SIGKILL && !killed_by_us_) {
    std::optional<uint64_t> kills;
    if (cgroup_made_) kills = cgroup_.OomKills();
    record_.out_of_memory =
        kills.has_value() ? *kills > 0
                          : oom_kills_before_.has_value() && OomKillCount() > oom_kills_before_;
  }
  if (cgroup_made_) cgroup_.Remove();
  if (!WriteFileAtomically(kExitFile, EncodeExitRecord(record_), true)) {
    std::fprintf(stderr, "muster-shim: cannot write the exit record: %s\n", std::strerror(errno));
  }
  unlink(kSocketFile);
  workers_.Broadcast("exited\n");
}

}  // namespace muster::shim
