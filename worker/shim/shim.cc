#include "worker/shim/shim.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>
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
#include "worker/shim/exec.h"
#include "worker/shim/fields.h"
#include "worker/shim/mark.h"
#include "worker/shim/process_tree.h"
#include "worker/shim/program.h"

namespace muster::shim {
namespace {

constexpr size_t kMaxConnections = 8;
constexpr size_t kMaxCommandBytes = kMaxNoteBytes + 64;
constexpr size_t kReadsPerTurn = 16;  // from one pipe before the control socket is served again
constexpr int kQuickPasses = 100;     // over children that replace each other
// How long a note waits for the end of the program's line.
constexpr int64_t kNoteDelayMs = 1000;
// Shortest time between reports of lost output.
constexpr int64_t kLostIntervalMs = 5000;
constexpr size_t kExitRecordBytes = limits::kStderrTailBytes + (8 << 10);

// Returns nothing for text that is not a whole, non-negative number.
std::optional<int64_t> ParseMs(std::string_view text) {
  int64_t ms = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, ms);
  if (error != std::errc() || stop != end || ms < 0) return std::nullopt;
  return ms;
}

int ListenOn(const char* path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
  unlink(path);
  const mode_t mask = umask(0177);
  const bool ok =
      bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 && listen(fd, 4) == 0;
  umask(mask);
  if (ok) return fd;
  close(fd);
  return -1;
}

}  // namespace

Shim::Shim(Instructions instructions, int control_fd)
    : instructions_(std::move(instructions)),
      cgroup_(instructions_.cgroup),
      hang_watch_(instructions_.hang_timeout_ms, MonotonicMs()),
      memory_watch_(instructions_.memory_interval_ms),
      stderr_tail_(limits::kStderrTailLines, limits::kStderrTailBytes) {
  if (control_fd >= 0) connections_.push_back({control_fd, ""});
}

Shim::~Shim() {
  for (const Connection& connection : connections_) close(connection.fd);
  for (const int fd : {epoll_, signals_, listener_, grace_timer_, worker_away_timer_, note_timer_,
                       hang_timer_, memory_timer_, exec_result_, stdout_.fd, stderr_.fd}) {
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
  listener_ = ListenOn(kSocketFile);
  hang_timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  memory_timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  for (const int fd : {signals_, grace_timer_, worker_away_timer_, note_timer_, hang_timer_,
                       memory_timer_, listener_}) {
    if (fd < 0 || !Watch(fd)) return false;
  }
  if (!fence_.Open() || !Watch(fence_.fd())) return false;
  fence_.SetDeadline(instructions_.lease_deadline_ms);
  SetTimer(hang_timer_, hang_watch_.interval_ms());
  SetTimer(memory_timer_, memory_watch_.first_ms());
  AwaitWorker();
  for (const Connection& connection : connections_) {
    fcntl(connection.fd, F_SETFD, FD_CLOEXEC);
    fcntl(connection.fd, F_SETFL, O_NONBLOCK);
    if (!Watch(connection.fd)) return false;
  }
  // Reserve space for the exit record, because the rank's log may fill the disk.
  return ReserveFor(kExitFile, kExitRecordBytes) &&
         stdout_.log.Open(instructions_.stdout_path, instructions_.log_max_bytes) &&
         stderr_.log.Open(instructions_.stderr_path, instructions_.log_max_bytes);
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
    if (!piped) Broadcast(StateLine());  // otherwise at the end of the exec pipe
  }
  for (const int fd : {out[1], err[1], report[1]}) {
    if (fd >= 0) close(fd);
  }
  stdout_.fd = out[0];
  stderr_.fd = err[0];
  exec_result_ = report[0];
  record_.pid = std::max<pid_t>(pid_, 0);
  for (const int fd : {stdout_.fd, stderr_.fd, exec_result_}) {
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
  if (fd == listener_) return Accept();
  if (fd == exec_result_) return ReadExecResult();
  if (fd == stdout_.fd) return ReadOutput(stdout_, false);
  if (fd == stderr_.fd) return ReadOutput(stderr_, false);
  if (fd == fence_.fd()) return OnLeaseDeadline();
  if (fd == grace_timer_ || fd == worker_away_timer_ || fd == note_timer_ || fd == hang_timer_ ||
      fd == memory_timer_) {
    uint64_t expirations = 0;
    if (read(fd, &expirations, sizeof(expirations)) < 0)
      return;  // the timer was set again meanwhile
    if (fd == worker_away_timer_) return OnWorkerAwayTooLong();
    if (fd == note_timer_) return stderr_.log.WriteNotes(WallMicros());
    if (fd == hang_timer_) {
      SetTimer(hang_timer_, hang_watch_.interval_ms());
      return Broadcast(hang_watch_.OnTimer(MonotonicMs()));
    }
    if (fd == memory_timer_) {
      SetTimer(memory_timer_, memory_watch_.interval_ms());
      return Broadcast(memory_watch_.OnTimer(Cgroup(cgroup_made_ ? cgroup_.path() : "")));
    }
    if (kill_sent_) return OnUnkillable();
    grace_over_ = true;
    return;
  }
  const auto connection = std::find_if(connections_.begin(), connections_.end(),
                                       [fd](const Connection& c) { return c.fd == fd; });
  if (connection != connections_.end()) ReadCommands(connection);
}

void Shim::Accept() {
  const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return;
  if (connections_.size() >= kMaxConnections || !Watch(fd)) {
    close(fd);
    return;
  }
  connections_.push_back({fd, ""});
  SetTimer(worker_away_timer_, -1);
  SendState(connections_.back());
}

bool Shim::ReadCommands(std::list<Connection>::iterator connection) {
  char buffer[512];
  const ssize_t n = read(connection->fd, buffer, sizeof(buffer));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    Disconnect(connection);
    return false;
  }
  connection->input.append(buffer, static_cast<size_t>(n));
  size_t newline = 0;
  while ((newline = connection->input.find('\n')) != std::string::npos) {
    const std::string command = connection->input.substr(0, newline);
    connection->input.erase(0, newline + 1);
    Execute(*connection, command);
  }
  if (connection->input.size() <= kMaxCommandBytes) return true;
  Disconnect(connection);
  return false;
}

void Shim::Execute(Connection& connection, std::string_view command) {
  constexpr std::string_view kStop = "stop ";
  constexpr std::string_view kAbort = "abort ";
  constexpr std::string_view kNote = "note ";
  constexpr std::string_view kLease = "lease ";
  if (command == "kill") {
    Stop(0, instructions_.stop_signal);
  } else if (command == "ping") {
    send(connection.fd, "pong\n", 5, MSG_NOSIGNAL);
  } else if (command.substr(0, kNote.size()) == kNote) {
    // Not added to the tail, which contains only the rank's output.
    if (main_exited_) return;
    const bool waiting = stderr_.log.has_waiting_notes();
    stderr_.log.AddNote(command.substr(kNote.size()), WallMicros());
    if (!waiting && stderr_.log.has_waiting_notes()) SetTimer(note_timer_, kNoteDelayMs);
  } else if (command == "active") {
    Broadcast(hang_watch_.OnOutput(MonotonicMs()));
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
}

void Shim::Disconnect(std::list<Connection>::iterator connection) {
  close(connection->fd);
  connections_.erase(connection);
  AwaitWorker();
}

// A worker that is too slow to read a few short lines gets the rest from the exit record.
void Shim::Broadcast(std::string_view line) {
  if (line.empty()) return;
  for (const Connection& connection : connections_) {
    send(connection.fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

void Shim::SendState(Connection& connection) {
  const std::string line = StateLine() + hang_watch_.StateLine(MonotonicMs()) +
                           memory_watch_.StateLine() + stdout_.LimitLine() + stderr_.LimitLine() +
                           LostLine();
  if (!line.empty()) send(connection.fd, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::string Shim::Output::LimitLine() const {
  if (drops.empty()) return "";
  return std::string("log-limit ").append(name).append(" ").append(drops).append("\n");
}

LostOutput Shim::Lost() const {
  LostOutput lost = stdout_.log.lost();
  lost.Add(stderr_.log.lost());
  return lost;
}

std::string Shim::LostLine() const {
  const LostOutput lost = Lost();
  if (lost.bytes == 0) return "";
  return "lost " + std::to_string(lost.lines) + " " + std::to_string(lost.bytes) + " " +
         lost.reason + "\n";
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
  Broadcast(StateLine());
}

void Shim::ReadOutput(Output& output, bool all) {
  char buffer[64 << 10];
  for (size_t i = 0; output.fd >= 0 && (all || i < kReadsPerTurn); ++i) {
    const ssize_t n = read(output.fd, buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      close(output.fd);
      output.fd = -1;
      return;
    }
    const std::string_view data(buffer, static_cast<size_t>(n));
    output.log.Append(data, WallMicros());
    if (std::exchange(output.drops, output.log.drops()) != output.drops) {
      Broadcast(output.LimitLine());
    }
    const uint64_t lost_bytes = output.log.lost().bytes;
    if (std::exchange(output.lost_bytes, lost_bytes) != lost_bytes &&
        MonotonicMs() >= next_lost_report_ms_) {
      next_lost_report_ms_ = MonotonicMs() + kLostIntervalMs;
      Broadcast(LostLine());
    }
    if (instructions_.joined_output == (&output == &stdout_)) stderr_tail_.Append(data);
    Broadcast(hang_watch_.OnOutput(MonotonicMs()));
  }
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
    Broadcast(hang_watch_.OnReaped(pid));
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
  if (!connections_.empty() || fence_.has_deadline()) return;
  if (instructions_.failure_timeout_ms > 0) {
    SetTimer(worker_away_timer_, instructions_.failure_timeout_ms);
  }
}

void Shim::OnLeaseDeadline() {
  // A shim that was stopped or blocked may have later deadlines to read.
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto connection = next++;
    while (ReadCommands(connection)) {
    }
  }
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
  Broadcast("unkillable\n");
}

void Shim::Finish() {
  ReadOutput(stdout_, true);
  ReadOutput(stderr_, true);
  stdout_.log.Finish(WallMicros());
  stderr_.log.Finish(WallMicros());
  record_.lost_output = Lost();
  record_.stderr_tail = stderr_tail_.Lines();
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
  Broadcast("exited\n");
}

}  // namespace muster::shim
