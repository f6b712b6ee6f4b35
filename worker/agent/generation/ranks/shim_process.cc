#include "worker/agent/generation/ranks/shim_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "common/time/now.h"
#include "glog/logging.h"
#include "worker/shim/fields.h"
#include "worker/shim/process_tree.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kSweepInterval = absl::Milliseconds(20);
constexpr absl::Duration kSweepPatience = absl::Seconds(15);
constexpr absl::Duration kFlushInterval = absl::Milliseconds(100);

int64_t Milliseconds(absl::Duration grace) {
  return std::max<int64_t>(0, absl::ToInt64Milliseconds(grace));
}

// Starts the shim in its own session, with default signal handlers, and with only the descriptor
// `control`.
absl::StatusOr<pid_t> Spawn(const std::string& binary, const std::string& directory, int control,
                            const std::vector<std::string>& environment) {
  const std::string log = absl::StrCat(directory, "/", shim::kLogFile);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, control, shim::kControlFd);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);

  const char* argv[] = {binary.c_str(), directory.c_str(), nullptr};
  std::vector<char*> envp;
  for (const std::string& entry : environment) envp.push_back(const_cast<char*>(entry.c_str()));
  envp.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, binary.c_str(), &actions, &attributes,
                                const_cast<char**>(argv), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("start ", binary));
  return pid;
}

// Through an open directory, so that a long path does not matter.
OwnedFd ConnectTo(const std::string& directory) {
  const OwnedFd folder(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/%s", folder.get(),
                shim::kSocketFile);
  OwnedFd connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return OwnedFd();
  }
  return connection;
}

// Reaps the shim. It closes its socket shortly before it exits, when its owner may already be
// destroyed, so the loop does this.
void ReapWhenOver(EventLoop& loop, pid_t pid) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) return;
  loop.Watch(pidfd, [&loop, pidfd] {
    siginfo_t info = {};
    waitid(static_cast<idtype_t>(P_PIDFD), static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG);
    loop.Unwatch(pidfd);
    close(pidfd);
  });
}

}  // namespace

std::string TokenIn(const shim::Instructions& instructions) {
  for (const std::string& entry : instructions.environment) {
    if (absl::StartsWith(entry, kTokenVariable)) {
      return std::string(absl::StripPrefix(entry, kTokenVariable));
    }
  }
  return "";
}

std::string ShimEntry(const shim::Instructions& instructions) {
  if (instructions.mark != 0) return shim::MarkEntry(instructions.mark);
  return absl::StrCat(kTokenVariable, TokenIn(instructions));
}

bool SameToken(const std::string& a, const std::string& b) {
  if (a.size() != b.size() || a.empty()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

ShimProcess::ShimProcess(EventLoop& loop, std::string directory,
                         const shim::Instructions& instructions, Events events)
    : loop_(loop),
      directory_(std::move(directory)),
      cgroup_(instructions.cgroup),
      mark_(instructions.mark),
      entry_(ShimEntry(instructions)),
      events_(std::move(events)) {}

ShimProcess::~ShimProcess() {
  CloseSocket();
  if (timer_.has_value()) loop_.Cancel(*timer_);
  if (flush_timer_.has_value()) loop_.Cancel(*flush_timer_);
}

absl::StatusOr<std::unique_ptr<ShimProcess>> ShimProcess::Start(
    EventLoop& loop, const std::string& shim_binary, const std::string& directory,
    const shim::Instructions& instructions, const std::vector<std::string>& secrets,
    Events events) {
  const std::string path = absl::StrCat(directory, "/", shim::kInstructionsFile);
  if (!shim::WriteFileAtomically(path, shim::EncodeInstructions(instructions), false)) {
    return ErrnoStatus(errno, absl::StrCat("write ", path));
  }
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  std::vector<std::string> environment = {ShimEntry(instructions)};
  for (const std::string& secret : secrets) {
    environment.push_back(absl::StrCat(shim::kSecretPrefix, secret));
  }
  OwnedFd ours(pair[0]);
  const OwnedFd theirs(pair[1]);
  ASSIGN_OR_RETURN(const pid_t pid, Spawn(shim_binary, directory, theirs.get(), environment));
  std::unique_ptr<ShimProcess> shim(
      new ShimProcess(loop, directory, instructions, std::move(events)));
  shim->WatchSocket(std::move(ours));
  ReapWhenOver(loop, pid);
  return shim;
}

std::unique_ptr<ShimProcess> ShimProcess::Adopt(EventLoop& loop, const std::string& directory,
                                                const shim::Instructions& instructions,
                                                Events events) {
  std::unique_ptr<ShimProcess> shim(
      new ShimProcess(loop, directory, instructions, std::move(events)));
  if (OwnedFd socket = ConnectTo(directory); socket.get() >= 0) {
    shim->WatchSocket(std::move(socket));
  } else {
    shim->timer_ = loop.RunAfter(absl::ZeroDuration(), [raw = shim.get()] { raw->OnGone(); });
  }
  return shim;
}

void ShimProcess::Stop(absl::Duration grace) {
  Send(absl::StrCat("stop ", Milliseconds(grace)), /*essential=*/true);
}
void ShimProcess::Abort(absl::Duration grace) {
  Send(absl::StrCat("abort ", Milliseconds(grace)), /*essential=*/true);
}

void ShimProcess::Note(const std::string& line) {
  Send(absl::StrCat("note ", absl::StrReplaceAll(line.substr(0, shim::kMaxNoteBytes),
                                                 {{"\n", " "}, {"\r", " "}})));
}

void ShimProcess::Send(const std::string& line, bool essential) {
  if (line_->Send(line, essential)) FlushLater();
}

void ShimProcess::FlushLater() {
  if (flush_timer_.has_value()) return;
  flush_timer_ = loop_.RunAfter(kFlushInterval, [this] {
    flush_timer_.reset();
    if (line_->Flush()) FlushLater();
  });
}

void ShimProcess::WatchSocket(OwnedFd socket) {
  socket_ = std::move(socket);
  line_->Open(socket_.get());
  loop_.Watch(socket_.get(), [this] { OnReadable(); });
}

void ShimProcess::CloseSocket() {
  if (socket_.get() < 0) return;
  loop_.Unwatch(socket_.get());
  line_->Close();
  socket_.Close();
}

void ShimProcess::OnReadable() {
  char buffer[1024];
  const ssize_t n = read(socket_.get(), buffer, sizeof(buffer));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) {
    CloseSocket();
    OnGone();
    return;
  }
  input_.append(buffer, static_cast<size_t>(n));
  size_t newline = 0;
  while ((newline = input_.find('\n')) != std::string::npos) {
    const std::string line = input_.substr(0, newline);
    input_.erase(0, newline + 1);
    OnLine(line);
  }
}

void ShimProcess::OnLine(const std::string& line) {
  absl::string_view rest = line;
  int pid = 0;
  // Other events are also in the exit record.
  if (absl::ConsumePrefix(&rest, "started ") && absl::SimpleAtoi(rest, &pid)) {
    events_.on_started(pid);
  }
  int64_t silence_ms = 0;
  if (absl::ConsumePrefix(&rest, "silent ") && absl::SimpleAtoi(rest, &silence_ms)) {
    events_.on_silence(absl::Milliseconds(silence_ms));
  }
  if (line == "active") events_.on_silence(absl::ZeroDuration());
  uint64_t memory_bytes = 0;
  if (absl::ConsumePrefix(&rest, "memory ") && absl::SimpleAtoi(rest, &memory_bytes)) {
    events_.on_memory(memory_bytes);
  }
  if (line == "inspected") OnInspected();
  if (line == "unkillable") events_.on_unkillable(0);
  if (absl::ConsumePrefix(&rest, "log-limit ")) {
    const std::pair<std::string, std::string> limit = absl::StrSplit(rest, absl::MaxSplits(' ', 1));
    events_.on_log_limit(limit.first, limit.second);
  }
  if (absl::ConsumePrefix(&rest, "lost ")) {
    const std::vector<std::string> fields = absl::StrSplit(rest, absl::MaxSplits(' ', 2));
    shim::LostOutput lost;
    if (fields.size() == 3 && absl::SimpleAtoi(fields[0], &lost.lines) &&
        absl::SimpleAtoi(fields[1], &lost.bytes)) {
      lost.reason = fields[2];
      events_.on_lost_output(lost);
    }
  }
}

void ShimProcess::OnInspected() {
  const std::optional<std::string> text =
      shim::ReadFile(absl::StrCat(directory_, "/", shim::kInspectionFile));
  events_.on_inspected(text.has_value() ? shim::DecodeInspection(*text) : std::nullopt);
}

void ShimProcess::OnGone() {
  timer_.reset();
  const std::optional<std::string> text =
      shim::ReadFile(absl::StrCat(directory_, "/", shim::kExitFile));
  if (text.has_value()) record_ = shim::DecodeExitRecord(*text);
  LOG_IF(ERROR, !record_.has_value()) << "the shim of " << directory_ << " was lost";
  const bool has_companions =
      access(absl::StrCat(directory_, "/", shim::kCompanionFile).c_str(), F_OK) == 0;
  if (!record_.has_value() || has_companions) return SweepRemains();
  End();
}

void ShimProcess::End() {
  // A copy, because the callback may destroy this object.
  const auto on_ended = events_.on_ended;
  on_ended(std::move(record_));
}

void ShimProcess::SweepRemains() {
  timer_.reset();
  cgroup_.Kill();
  const shim::Sweep found = shim::KillMarked(entry_, mark_);
  if (!found.complete || !found.alive.empty() || !cgroup_.Processes().empty()) {
    if (!sweeping_since_.has_value()) sweeping_since_ = Now().steady;
    if (!unkillable_ && Now().steady - *sweeping_since_ > kSweepPatience) {
      unkillable_ = true;
      events_.on_unkillable(found.alive.empty() ? 0 : found.alive.front());
    }
    timer_ = loop_.RunAfter(kSweepInterval, [this] { SweepRemains(); });
    return;
  }
  cgroup_.Remove();
  End();
}

}  // namespace muster::agent
