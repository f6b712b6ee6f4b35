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
#include "common/limits.h"
#include "common/process/exit_code.h"
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

bool SetNonBlocking(const OwnedFd& fd) { return fcntl(fd.get(), F_SETFL, O_NONBLOCK) == 0; }

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
  OwnedFd theirs[3];
  OwnedFd control;
  if (!(start.terminal() ? process->OpenTerminal(theirs[0]) : process->OpenPipes(theirs)) ||
      !OpenPipe(control, process->control_)) {
    return ErrnoStatus(errno, "open the command's streams");
  }
  ChildProgram program;
  program.command = {shim_binary, shim::kCompanionWord, rank_directory,
                     start.terminal() ? (start.term().empty() ? "dumb" : start.term()) : ""};
  program.command.insert(program.command.end(), start.command().begin(), start.command().end());
  program.environment = {ShimEntry(instructions)};
  program.descriptors = {theirs[0].get(), theirs[start.terminal() ? 0 : 1].get(),
                         theirs[start.terminal() ? 0 : 2].get(), control.get()};
  ASSIGN_OR_RETURN(const pid_t pid, StartChild(program));
  ReapOnExit(loop, pid, std::move(on_exit));
  return process;
}

bool ExecProcess::OpenTerminal(OwnedFd& theirs) {
  out_ = OwnedFd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  char name[64];
  if (out_.get() < 0 || grantpt(out_.get()) != 0 || unlockpt(out_.get()) != 0 ||
      ptsname_r(out_.get(), name, sizeof(name)) != 0) {
    return false;
  }
  theirs = OwnedFd(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (theirs.get() < 0) return false;
  in_ = OwnedFd(fcntl(out_.get(), F_DUPFD_CLOEXEC, 0));
  return in_.get() >= 0 && SetNonBlocking(out_);
}

bool ExecProcess::OpenPipes(OwnedFd theirs[3]) {
  return OpenPipe(theirs[0], in_) && OpenPipe(out_, theirs[1]) && OpenPipe(err_, theirs[2]) &&
         SetNonBlocking(in_) && SetNonBlocking(out_) && SetNonBlocking(err_);
}

ExecProcess::~ExecProcess() {
  UnwatchOutput();
  for (OwnedFd* const fd : {&in_, &out_, &err_, &control_}) Close(*fd);
}

void ExecProcess::Close(OwnedFd& fd) {
  if (fd.get() < 0) return;
  loop_.Unwatch(fd.get());
  fd.Close();
}

bool ExecProcess::Read(OwnedFd& fd, std::string& data) {
  if (fd.get() < 0) return true;
  data.resize(limits::kLogChunkBytes);
  const ssize_t n = read(fd.get(), data.data(), data.size());
  const int error = errno;
  data.resize(n > 0 ? static_cast<size_t>(n) : 0);
  if (n < 0 && (error == EAGAIN || error == EINTR)) return false;
  // A terminal ends with EIO.
  if (n <= 0) fd.Close();
  return true;
}

void ExecProcess::WatchOutput(const std::function<void()>& on_readable) {
  for (const int fd : {out_.get(), err_.get()}) {
    if (fd >= 0) loop_.Watch(fd, on_readable);
  }
}

void ExecProcess::UnwatchOutput() {
  for (const int fd : {out_.get(), err_.get()}) {
    if (fd >= 0) loop_.Unwatch(fd);
  }
}

void ExecProcess::Write(std::string data, std::function<void()> done) {
  pending_ = std::move(data);
  on_written_ = std::move(done);
  Flush();
}

void ExecProcess::Flush() {
  while (in_.get() >= 0 && !pending_.empty()) {
    const ssize_t n = write(in_.get(), pending_.data(), pending_.size());
    if (n > 0) {
      pending_.erase(0, static_cast<size_t>(n));
    } else if (n < 0 && errno == EAGAIN) {
      loop_.Unwatch(in_.get());
      loop_.WatchWritable(in_.get(), [this] { Flush(); });
      return;
    } else if (n < 0 && errno != EINTR) {
      Close(in_);  // the command does not read its stdin any more
    }
  }
  pending_.clear();
  if (in_.get() >= 0) loop_.Unwatch(in_.get());
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
  if (!terminal_ || out_.get() < 0) return;
  winsize size = {};
  size.ws_row = static_cast<unsigned short>(rows);
  size.ws_col = static_cast<unsigned short>(columns);
  ioctl(out_.get(), TIOCSWINSZ, &size);
}

void ExecProcess::Signal(int signal) {
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t n = write(control_.get(), &byte, 1);
}

void ExecProcess::Kill() { Close(control_); }

}  // namespace muster::agent
