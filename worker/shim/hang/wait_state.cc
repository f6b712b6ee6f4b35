#include "worker/shim/hang/wait_state.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

constexpr int kDeepestWrapper = 8;

std::string Directory(pid_t pid) { return "/proc/" + std::to_string(pid); }

// The kind of an open file, for a thread that waits for it.
std::string KindOf(pid_t pid, uint64_t fd) {
  char target[PATH_MAX];
  const std::string link = Directory(pid) + "/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), target, sizeof(target));
  if (length < 0) return "file";
  const std::string_view name(target, static_cast<size_t>(length));
  if (name.rfind("socket:", 0) == 0) return "socket";
  return name.rfind("pipe:", 0) == 0 ? "pipe" : "file";
}

// poll with one descriptor is the wait for a connection or pipe.
std::string KindOfPoll(pid_t pid, uint64_t address, uint64_t count) {
  pollfd polled = {};
  iovec local = {&polled, sizeof(polled)};
  iovec remote = {reinterpret_cast<void*>(address), sizeof(polled)};
  if (count != 1 || process_vm_readv(pid, &local, 1, &remote, 1, 0) != sizeof(polled)) {
    return "poll";
  }
  const std::string kind = KindOf(pid, static_cast<uint64_t>(polled.fd));
  return kind == "file" ? "poll" : kind;
}

// `text` is the content of /proc/PID/syscall: the number and arguments of the system call, or
// "running".
std::optional<std::string> FromSyscall(pid_t pid, const std::string& text) {
  if (text.rfind("running", 0) == 0) return "";
  char* at = nullptr;
  const long number = std::strtol(text.c_str(), &at, 10);
  if (at == text.c_str() || number < 0) return std::nullopt;
  uint64_t arguments[2] = {};
  for (uint64_t& argument : arguments) argument = std::strtoull(at, &at, 16);
  switch (number) {
    case SYS_futex:
#ifdef SYS_futex_waitv
    case SYS_futex_waitv:
#endif
      return "futex";
    case SYS_nanosleep:
    case SYS_clock_nanosleep:
#ifdef SYS_pause
    case SYS_pause:
#endif
    case SYS_rt_sigsuspend:
    case SYS_rt_sigtimedwait:
      return "sleep";
#ifdef SYS_poll
    case SYS_poll:
#endif
    case SYS_ppoll:
      return KindOfPoll(pid, arguments[0], arguments[1]);
#ifdef SYS_select
    case SYS_select:
    case SYS_epoll_wait:
#endif
    case SYS_pselect6:
    case SYS_epoll_pwait:
      return "poll";
    case SYS_wait4:
    case SYS_waitid:
      return "child";
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_sendto:
    case SYS_sendmsg:
    case SYS_connect:
    case SYS_accept4:
#ifdef SYS_accept
    case SYS_accept:
#endif
      return "socket";
    case SYS_read:
    case SYS_readv:
    case SYS_pread64:
    case SYS_write:
    case SYS_writev:
    case SYS_pwrite64:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_flock:
    case SYS_fcntl:
      return KindOf(pid, arguments[0]);
    default:
      return std::nullopt;
  }
}

std::string FromKernelFunction(std::string_view function) {
  struct Entry {
    std::string_view part;
    const char* waits_in;
  };
  constexpr Entry kEntries[] = {
      {"nanosleep", "sleep"}, {"futex", "futex"},   {"pipe", "pipe"},   {"poll", "poll"},
      {"select", "poll"},     {"do_wait", "child"}, {"sock", "socket"}, {"sk_", "socket"},
      {"inet", "socket"},     {"unix_", "socket"},  {"tcp_", "socket"}, {"skb_", "socket"},
      {"folio", "file"},      {"nfs", "file"},      {"lock", "file"},   {"pause", "sleep"},
  };
  for (const Entry& entry : kEntries) {
    if (function.find(entry.part) != std::string_view::npos) return entry.waits_in;
  }
  return "";
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  const std::string path = Directory(pid) + "/task/" + std::to_string(pid) + "/children";
  const std::string text = ReadFile(path).value_or("");
  std::vector<pid_t> children;
  char* next = nullptr;
  for (const char* at = text.c_str(); *at != '\0'; at = next) {
    const auto child = static_cast<pid_t>(std::strtol(at, &next, 10));
    if (next == at || child <= 0) break;
    children.push_back(child);
  }
  return children;
}

pid_t FirstOf(const std::vector<pid_t>& pids) { return pids.empty() ? 0 : pids.front(); }

// The main process of a rank of a job with `launcher: mpi`; see worker/mpi/rank_process.h.
bool IsMpiRank(pid_t pid) { return ReadFile(Directory(pid) + "/comm") == "muster-mpi\n"; }

// Its program is in its process group, and Open MPI's daemon is not. 0: there is none.
pid_t ChildInGroupOf(pid_t pid) {
  for (const pid_t child : ChildrenOf(pid)) {
    if (getpgid(child) == getpgid(pid)) return child;
  }
  return 0;
}

}  // namespace

std::string ProcessState(pid_t pid) {
  const std::optional<std::string> stat = ReadFile(Directory(pid) + "/stat");
  const size_t name_end = stat.has_value() ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos || name_end + 2 >= stat->size()) return "gone";
  switch ((*stat)[name_end + 2]) {
    case 'R':
      return "running";
    case 'D':
      return "disk";
    case 'T':
    case 't':
      return "stopped";
    case 'Z':
    case 'X':
      return "zombie";
    default:
      return "sleeping";
  }
}

std::string WaitsIn(pid_t pid) {
  const std::optional<std::string> syscall = ReadFile(Directory(pid) + "/syscall");
  if (syscall.has_value()) {
    const std::optional<std::string> found = FromSyscall(pid, *syscall);
    if (found.has_value()) return *found;
  }
  return FromKernelFunction(ReadFile(Directory(pid) + "/wchan").value_or(""));
}

pid_t WorkingProcess(pid_t pid) {
  for (int depth = 0; depth < kDeepestWrapper; ++depth) {
    const pid_t child = IsMpiRank(pid)            ? ChildInGroupOf(pid)
                        : WaitsIn(pid) == "child" ? FirstOf(ChildrenOf(pid))
                                                  : 0;
    if (child <= 0) break;
    pid = child;
  }
  return pid;
}

}  // namespace muster::shim
