#include "worker/shim/rank/shim.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "common/limits.h"
#include "worker/shim/clock.h"
#include "worker/shim/fields.h"
#include "worker/shim/program.h"
#include "worker/shim/rank/exec.h"

namespace muster::shim {
namespace {

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

// Runs in the child. Not limited to async-signal-safe calls, because the shim has no threads.
[[noreturn]] void BecomeRank(const Instructions& instructions, int out, int err, int report) {
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
  BindToCpus(instructions.cpus);

  const ExecFailure failure = Exec(instructions);
  [[maybe_unused]] const ssize_t n = write(report, &failure, sizeof(failure));
  _exit(ExitCodeOf(failure));
}

}  // namespace

Shim::Shim(Instructions instructions, int control_fd)
    : instructions_(std::move(instructions)),
      hang_watch_(instructions_.hang_timeout_ms, MonotonicMs()),
      memory_watch_(instructions_.memory_interval_ms),
      workers_(control_fd, WorkerEvents()),
      output_(instructions_, OutputEvents()),
      tree_(instructions_, [this](pid_t pid) { workers_.Broadcast(hang_watch_.OnReaped(pid)); }) {}

int Shim::Run() {
  if (!SetUp()) {
    tree_.SetNotStarted("shim");
    Finish();
    return 1;
  }
  if (fence_.HasPassed()) {  // the worker was suspended, and the job may run elsewhere by now
    tree_.Expire();
    tree_.record().signal = SIGKILL;
    Finish();
    return 0;
  }
  StartRank();
  while (true) {
    if (tree_.main_exited() && exec_result_.get() >= 0) ReadExecResult();
    if (tree_.Settle()) break;
    epoll_event events[16];
    const int n = epoll_wait(epoll_.get(), events, 16, -1);
    for (int i = 0; i < n; ++i) Dispatch(events[i].data.fd);
  }
  Finish();
  return 0;
}

bool Shim::SetUp() {
  if (!tree_.Open()) return false;
  // A limit of the size of files is reported as a failed write.
  signal(SIGXFSZ, SIG_IGN);

  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&mask, signal);
  sigprocmask(SIG_BLOCK, &mask, nullptr);
  epoll_ = OwnedFd(epoll_create1(EPOLL_CLOEXEC));
  signals_ = OwnedFd(signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.get() < 0 || !Watch(signals_.get()) || !Watch(tree_.grace_timer())) return false;
  for (OwnedFd* const timer : {&worker_away_timer_, &note_timer_, &hang_timer_, &memory_timer_}) {
    *timer = OwnedFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (timer->get() < 0 || !Watch(timer->get())) return false;
  }
  if (!fence_.Open() || !Watch(fence_.fd())) return false;
  fence_.SetDeadline(instructions_.lease_deadline_ms);
  SetTimer(hang_timer_.get(), hang_watch_.interval_ms());
  SetTimer(memory_timer_.get(), memory_watch_.first_ms());
  AwaitWorker();
  // Reserve space for the exit record, because the rank's log may fill the disk.
  return workers_.Open() && ReserveFor(kExitFile, kExitRecordBytes) && output_.Open();
}

bool Shim::Watch(int fd) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Shim::StartRank() {
  OwnedFd out[2];
  OwnedFd err[2];
  OwnedFd report;
  const bool joined = instructions_.joined_output;
  const bool piped = OpenPipe(out[0], out[1]) && (joined || OpenPipe(err[0], err[1])) &&
                     OpenPipe(exec_result_, report);
  if (!piped) tree_.SetNotStarted("fork");
  if (piped && tree_.Fork() == 0) {
    BecomeRank(instructions_, out[1].get(), (joined ? out : err)[1].get(), report.get());
  }
  if (exec_result_.get() < 0) workers_.Broadcast(StateLine());
  for (const int fd : {out[0].get(), err[0].get(), exec_result_.get()}) {
    if (fd < 0) continue;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    Watch(fd);
  }
  output_.SetPipes(std::move(out[0]), std::move(err[0]));
}

void Shim::Dispatch(int fd) {
  if (fd == signals_.get()) return ReadSignals();
  if (fd == exec_result_.get()) return ReadExecResult();
  if (fd == fence_.fd()) {
    // A shim that was stopped or blocked may have later deadlines to read.
    workers_.ReadAll();
    if (!fence_.HasPassed()) return;
    fence_.SetDeadline(0);
    return tree_.Expire();
  }
  if (fd == tree_.grace_timer() || fd == worker_away_timer_.get() || fd == note_timer_.get() ||
      fd == hang_timer_.get() || fd == memory_timer_.get()) {
    uint64_t expirations = 0;
    if (read(fd, &expirations, sizeof(expirations)) < 0)
      return;  // the timer was set again meanwhile
    if (fd == worker_away_timer_.get()) {
      tree_.record().abandoned = true;
      return tree_.Stop(instructions_.grace_ms, instructions_.stop_signal);
    }
    if (fd == note_timer_.get()) return output_.WriteNotes();
    if (fd == hang_timer_.get()) {
      SetTimer(hang_timer_.get(), hang_watch_.interval_ms());
      return workers_.Broadcast(hang_watch_.OnTimer(MonotonicMs()));
    }
    if (fd == memory_timer_.get()) {
      SetTimer(memory_timer_.get(), memory_watch_.interval_ms());
      return workers_.Broadcast(memory_watch_.OnTimer(tree_.group()));
    }
    if (!tree_.OnGraceTimer()) return;
    unkillable_ = true;
    return workers_.Broadcast("unkillable\n");
  }
  output_.OnReadable(fd);
  workers_.OnReadable(fd);
}

WorkerSockets::Events Shim::WorkerEvents() {
  WorkerSockets::Events events;
  events.watch = [this](int fd) { return Watch(fd); };
  events.on_connected = [this] {
    SetTimer(worker_away_timer_.get(), -1);
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
    tree_.Stop(0, instructions_.stop_signal);
  } else if (command == "ping") {
    return "pong\n";
  } else if (command.substr(0, kNote.size()) == kNote) {
    if (!tree_.main_exited() && output_.AddNote(command.substr(kNote.size()))) {
      SetTimer(note_timer_.get(), kNoteDelayMs);
    }
  } else if (command == "active") {
    workers_.Broadcast(hang_watch_.OnOutput(MonotonicMs()));
  } else if (command == "inspect") {
    hang_watch_.Inspect(tree_.record().pid, instructions_.user);
  } else if (command.substr(0, kLease.size()) == kLease) {
    const std::optional<int64_t> deadline_ms = ParseMs(command.substr(kLease.size()));
    if (deadline_ms.has_value()) fence_.SetDeadline(*deadline_ms);
  } else if (command.substr(0, kStop.size()) == kStop ||
             command.substr(0, kAbort.size()) == kAbort) {
    const int signal = command[0] == kAbort[0] ? SIGABRT : instructions_.stop_signal;
    const std::optional<int64_t> grace_ms = ParseMs(command.substr(command.find(' ') + 1));
    if (grace_ms.has_value()) tree_.Stop(*grace_ms, signal);
  }
  return "";
}

std::string Shim::State() {
  return StateLine() + hang_watch_.StateLine(MonotonicMs()) + memory_watch_.StateLine() +
         output_.StateLines();
}

std::string Shim::StateLine() {
  if (exec_result_.get() >= 0) return "";
  const ExitRecord& record = tree_.record();
  if (record.exec_errno == 0) {
    return "started " + std::to_string(record.pid) + "\n" + (unkillable_ ? "unkillable\n" : "");
  }
  return "exec-failed " + std::to_string(record.exec_errno) + " " + record.exec_error + "\n";
}

void Shim::ReadSignals() {
  signalfd_siginfo info = {};
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo == SIGCHLD) {
      tree_.Reap();
    } else {
      tree_.Stop(instructions_.grace_ms, instructions_.stop_signal);
    }
  }
}

void Shim::ReadExecResult() {
  ExecFailure failure = {};
  const ssize_t n = read(exec_result_.get(), &failure, sizeof(failure));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n == sizeof(failure)) {
    ExitRecord& record = tree_.record();
    record.exec_errno = failure.error;
    record.exec_error = Describe(failure, instructions_);
    std::replace(record.exec_error.begin(), record.exec_error.end(), '\n', ' ');
  }
  exec_result_.Close();
  workers_.Broadcast(StateLine());
}

void Shim::AwaitWorker() {
  if (workers_.connected() || fence_.has_deadline()) return;
  if (instructions_.failure_timeout_ms > 0) {
    SetTimer(worker_away_timer_.get(), instructions_.failure_timeout_ms);
  }
}

void Shim::Finish() {
  output_.Finish();
  tree_.Finish();
  ExitRecord& record = tree_.record();
  record.lost_output = output_.Lost();
  record.stderr_tail = output_.LastLines();
  if (!WriteFileAtomically(kExitFile, EncodeExitRecord(record), true)) {
    std::fprintf(stderr, "muster-shim: cannot write the exit record: %s\n", std::strerror(errno));
  }
  unlink(kSocketFile);
  workers_.Broadcast("exited\n");
}

}  // namespace muster::shim
