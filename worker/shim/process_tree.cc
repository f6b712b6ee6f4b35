#include "worker/shim/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "common/files/owned_fd.h"
#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

// The range of marks: larger than any limit in use, and so wide that two marks do not collide.
constexpr uint64_t kLeastMark = uint64_t{1} << 32;
constexpr uint64_t kMarkEnd = uint64_t{1} << 62;

// Calls `visit` with the pid of each process, shortly after the kernel has listed it: a process
// that replaces itself by a child all the time is then still there. Returns false if not all
// processes could be listed.
template <typename Visit>
bool VisitProcesses(Visit visit) {
  const OwnedFd proc(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  alignas(dirent64) char entries[512];  // small, for the reason above
  ssize_t size = 0;
  while ((size = getdents64(proc.get(), entries, sizeof(entries))) > 0) {
    for (ssize_t at = 0; at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const pid_t pid = std::atoi(entry->d_name);
      if (pid > 0) visit(pid);
    }
  }
  return size == 0;
}

struct Stat {
  pid_t parent = 0;
  char state = '?';
};

std::optional<Stat> ReadStat(pid_t pid) {
  const std::optional<std::string> text = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  if (!text.has_value()) return std::nullopt;
  // `pid (name) state ppid …`; the name may contain anything, including parentheses.
  const size_t name_end = text->rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= text->size()) return std::nullopt;
  return Stat{std::atoi(text->c_str() + name_end + 4), (*text)[name_end + 2]};
}

bool HasEntry(std::string_view environment, std::string_view entry) {
  while (!environment.empty()) {
    const size_t end = environment.find('\0');
    if (environment.substr(0, end) == entry) return true;
    if (end == std::string_view::npos) break;
    environment.remove_prefix(end + 1);
  }
  return false;
}

// The hard limit in the text of /proc/PID/limits; nothing if the process has just been reaped.
std::optional<uint64_t> MarkIn(const std::string& limits) {
  constexpr std::string_view kName = "Max file locks";
  const size_t at = limits.find(kName);
  if (at == std::string::npos) return std::nullopt;
  // The soft limit comes first. "unlimited" becomes 0.
  char* hard = nullptr;
  std::strtoull(limits.c_str() + at + kName.size(), &hard, 10);
  return std::strtoull(hard, nullptr, 10);
}

enum class Match { kNo, kYes, kUnknown };

Match Examine(pid_t pid, std::string_view entry, uint64_t mark) {
  const std::string folder = "/proc/" + std::to_string(pid);
  if (mark != 0) {
    const std::optional<std::string> limits = ReadFile(folder + "/limits");
    const std::optional<uint64_t> found = limits.has_value() ? MarkIn(*limits) : std::nullopt;
    if (!found.has_value()) return Match::kUnknown;
    if (*found == mark) return Match::kYes;
  }
  const std::optional<std::string> environment = ReadFile(folder + "/environ");
  if (environment.has_value()) return HasEntry(*environment, entry) ? Match::kYes : Match::kNo;
  // Otherwise it has ended, or belongs to another user or to the kernel.
  const bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
  return is_short ? Match::kUnknown : Match::kNo;
}

// Signals `pid` only if `still` holds once a pidfd guarantees that the pid is not reused.
template <typename Predicate>
bool KillIf(pid_t pid, Predicate still) {
  const OwnedFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (process.get() < 0 || !still(pid)) return false;
  syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
  return true;
}

}  // namespace

uint64_t NewMark() {
  rlimit limit = {};
  uint64_t random = 0;
  if (getrlimit(RLIMIT_LOCKS, &limit) != 0 || setrlimit(RLIMIT_LOCKS, &limit) != 0 ||
      limit.rlim_max <= 2 * kLeastMark || getentropy(&random, sizeof(random)) != 0) {
    return 0;
  }
  // Below the limit of a worker that is itself part of a rank.
  return kLeastMark + random % (std::min<uint64_t>(limit.rlim_max, kMarkEnd) - kLeastMark);
}

bool SetMark(uint64_t mark) {
  const rlimit limit = {mark, mark};
  return setrlimit(RLIMIT_LOCKS, &limit) == 0;
}

std::string MarkEntry(uint64_t mark) { return "MUSTER_SHIM_MARK=" + std::to_string(mark); }

std::vector<pid_t> Descendants(pid_t root) {
  std::unordered_map<pid_t, std::vector<pid_t>> children;
  VisitProcesses([&children](pid_t pid) {
    const std::optional<Stat> stat = ReadStat(pid);
    if (stat.has_value()) children[stat->parent].push_back(pid);
  });
  std::vector<pid_t> found = {root};
  for (size_t i = 0; i < found.size(); ++i) {
    const auto it = children.find(found[i]);
    if (it != children.end()) found.insert(found.end(), it->second.begin(), it->second.end());
  }
  found.erase(found.begin());
  return found;
}

void KillDescendants(pid_t root) {
  const std::vector<pid_t> tree = Descendants(root);
  std::unordered_set<pid_t> parents(tree.begin(), tree.end());
  parents.insert(root);
  for (const pid_t pid : tree) {
    KillIf(pid, [&](pid_t candidate) {
      const std::optional<Stat> stat = ReadStat(candidate);
      return stat.has_value() && parents.count(stat->parent) > 0;
    });
  }
}

bool KillChildren() {
  const std::string self = std::to_string(getpid());
  const std::optional<std::string> children = ReadFile("/proc/self/task/" + self + "/children");
  if (!children.has_value()) return false;
  const char* at = children->c_str();
  char* end = nullptr;
  for (long pid = 0; (pid = std::strtol(at, &end, 10)) > 0; at = end) {
    // Only this process reaps it, so its pid is not reused.
    kill(static_cast<pid_t>(pid), SIGKILL);
  }
  return true;
}

Sweep KillMarked(std::string_view entry, uint64_t mark) {
  Sweep sweep;
  const bool listed = VisitProcesses([&](pid_t pid) {
    if (pid == getpid()) return;
    Match match = Examine(pid, entry, mark);
    if (match == Match::kNo) return;
    // Examined again once the pidfd guarantees that the pid is not reused.
    const OwnedFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    match = process.get() < 0 ? Match::kUnknown : Examine(pid, entry, mark);
    pollfd end = {process.get(), POLLIN, 0};
    if (match == Match::kUnknown) {
      sweep.complete = false;
    } else if (match == Match::kYes && poll(&end, 1, 0) == 0) {  // otherwise it is a zombie
      syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
      sweep.alive.push_back(pid);
    }
  });
  sweep.complete = sweep.complete && listed;
  return sweep;
}

std::optional<uint64_t> OomKillCount() {
  const std::string groups = ReadFile("/proc/self/cgroup").value_or("");
  size_t at = 0;
  while (at < groups.size()) {
    size_t newline = groups.find('\n', at);
    if (newline == std::string::npos) newline = groups.size();
    // `id:controllers:path`; version 2 has id 0 and no controllers.
    const std::string line = groups.substr(at, newline - at);
    at = newline + 1;
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (path == "/") continue;
    std::optional<uint64_t> count;
    if (controllers == ",,") {
      count = CounterIn("/sys/fs/cgroup" + path + "/memory.events", "oom_kill");
    } else if (controllers.find(",memory,") != std::string::npos) {
      count = CounterIn("/sys/fs/cgroup/memory" + path + "/memory.oom_control", "oom_kill");
    }
    if (count.has_value()) return count;
  }
  return CounterIn("/proc/vmstat", "oom_kill");
}

}  // namespace muster::shim
