#include "worker/agent/exec/exec_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/exit_code.h"
#include "common/limits.h"
#include "common/status.h"
#include "worker/agent/generation/ranks/shim_process.h"
#include "worker/shim/companion.h"
#include "worker/shim/fields.h"
#include "worker/shim/protocol.h"

namespace muster::agent {
namespace {

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

constexpr char kEndOfFile = '\x04';  // ^D

// The instructions of the rank's shim, to which a companion is announced.
absl::StatusOr<shim::Instructions> PrepareCompanion(const std::string& rank_directory) {
  const std::optional<std::string> text =
      shim::ReadFile(absl::StrCat(rank_directory, "/", shim::kInstructionsFile));
  std::optional<shim::Instructions> instructions;
  if (text.has_value()) instructions = shim::DecodeInstructions(*text);
  if (!instructions.has_value()) {
    return absl::FailedPreconditionError("the rank has not been started yet");
  }
  const std::string file = absl::StrCat(rank_directory, "/", shim::kCompanionFile);
  if (!shim::WriteFileAtomically(file, "", false)) {
    return ErrnoStatus(errno, absl::StrCat("write ", file));
  }
  return *std::move(instructions);
}

bool SetNonBlocking(int fd) { return fcntl(fd, F_SETFL, O_NONBLOCK) == 0; }

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

absl::StatusOr<std::unique_ptr<ExecProcess>> ExecProcess::Start(
    EventLoop& loop, const std::string& shim_binary, const std::string& rank_directory,
    const v1::ExecInput::Start& start, std::function<void(int exit_code)> on_exit) {
  ASSIGN_OR_RETURN(const shim::Instructions instructions, PrepareCompanion(rank_directory));
  std::unique_ptr<ExecProcess> process(new ExecProcess(loop));
  process->terminal_ = start.terminal();
  int theirs[3] = {-1, -1, -1};
  int control[2] = {-1, -1};
  const bool opened =
      (start.terminal() ? process->OpenTerminal(theirs) : process->OpenPipes(theirs)) &&
      pipe2(control, O_CLOEXEC) == 0;
  absl::StatusOr<pid_t> pid = ErrnoStatus(opened ? EIO : errno, "open the command's streams");
  process->control_ = control[1];
  if (opened) {
    ChildProgram program;
    program.command = {shim_binary, shim::kCompanionWord, rank_directory,
                       start.terminal() ? (start.term().empty() ? "dumb" : start.term()) : ""};
    program.command.insert(program.command.end(), start.command().begin(), start.command().end());
    program.environment = {ShimEntry(instructions)};
    program.descriptors = {theirs[0], theirs[1], theirs[2], control[0]};
    pid = StartChild(program);
  }
  for (int fd : {theirs[0], control[0]}) {
    if (fd >= 0) close(fd);
  }
  if (!start.terminal()) {
    for (int fd : {theirs[1], theirs[2]}) {
      if (fd >= 0) close(fd);
    }
  }
  if (!pid.ok()) return pid.status();
  ReapOnExit(loop, *pid, std::move(on_exit));
  return process;
}

bool ExecProcess::OpenTerminal(int theirs[3]) {
  out_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  char name[64];
  if (out_ < 0 || grantpt(out_) != 0 || unlockpt(out_) != 0 ||
      ptsname_r(out_, name, sizeof(name)) != 0) {
    return false;
  }
  theirs[0] = theirs[1] = theirs[2] = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  in_ = fcntl(out_, F_DUPFD_CLOEXEC, 0);
  return theirs[0] >= 0 && in_ >= 0 && SetNonBlocking(out_);
}

bool ExecProcess::OpenPipes(int theirs[3]) {
  int in[2];
  int out[2];
  int err[2];
  if (pipe2(in, O_CLOEXEC) != 0) return false;
  theirs[0] = in[0];
  in_ = in[1];
  if (pipe2(out, O_CLOEXEC) != 0) return false;
  out_ = out[0];
  theirs[1] = out[1];
  if (pipe2(err, O_CLOEXEC) != 0) return false;
  err_ = err[0];
  theirs[2] = err[1];
  return SetNonBlocking(in_) && SetNonBlocking(out_) && SetNonBlocking(err_);
}

ExecProcess::~ExecProcess() {
  UnwatchOutput();
  for (int* fd : {&in_, &out_, &err_, &control_}) Close(*fd);
}

void ExecProcess::Close(int& fd) {
  if (fd < 0) return;
  loop_.Unwatch(fd);
  close(std::exchange(fd, -1));
}

bool ExecProcess::Read(int& fd, std::string& data) {
  if (fd < 0) return true;
  data.resize(limits::kLogChunkBytes);
  const ssize_t n = read(fd, data.data(), data.size());
  const int error = errno;
  data.resize(n > 0 ? static_cast<size_t>(n) : 0);
  if (n < 0 && (error == EAGAIN || error == EINTR)) return false;
  // A terminal ends with EIO.
  if (n <= 0) close(std::exchange(fd, -1));
  return true;
}

void ExecProcess::WatchOutput(const std::function<void()>& on_readable) {
  for (const int fd : {out_, err_}) {
    if (fd >= 0) loop_.Watch(fd, on_readable);
  }
}

void ExecProcess::UnwatchOutput() {
  for (const int fd : {out_, err_}) {
    if (fd >= 0) loop_.Unwatch(fd);
  }
}

void ExecProcess::Write(std::string data, std::function<void()> done) {
  pending_ = std::move(data);
  on_written_ = std::move(done);
  Flush();
}

void ExecProcess::Flush() {
  while (in_ >= 0 && !pending_.empty()) {
    const ssize_t n = write(in_, pending_.data(), pending_.size());
    if (n > 0) {
      pending_.erase(0, static_cast<size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      loop_.Unwatch(in_);
      loop_.WatchWritable(in_, [this] { Flush(); });
      return;
    } else if (n < 0 && errno != EINTR) {
      Close(in_);  // the command does not read its stdin any more
    }
  }
  pending_.clear();
  if (in_ >= 0) loop_.Unwatch(in_);
  const auto done = std::exchange(on_written_, nullptr);
  if (done) done();
}

void ExecProcess::CloseInput() {
  if (terminal_) {
    Write(std::string(1, kEndOfFile), nullptr);
  } else {
    Close(in_);
  }
}

void ExecProcess::Resize(uint32_t rows, uint32_t columns) {
  if (!terminal_ || out_ < 0) return;
  winsize size = {};
  size.ws_row = static_cast<unsigned short>(rows);
  size.ws_col = static_cast<unsigned short>(columns);
  ioctl(out_, TIOCSWINSZ, &size);
}

void ExecProcess::Signal(int signal) {
  const auto byte = static_cast<unsigned char>(signal);
  if (control_ >= 0) [[maybe_unused]]
    const ssize_t n = write(control_, &byte, 1);
}

void ExecProcess::Kill() { Close(control_); }

}  // namespace muster::agent
