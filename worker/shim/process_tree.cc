#include "worker/shim/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> pids;
  DIR* proc = opendir("/proc");
  if (proc == nullptr) return pids;
  while (const dirent* entry = readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid > 0) pids.push_back(pid);
  }
  closedir(proc);
  return pids;
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

bool HasEntry(pid_t pid, std::string_view entry) {
  const std::optional<std::string> environment =
      ReadFile("/proc/" + std::to_string(pid) + "/environ");
  if (!environment.has_value()) return false;
  std::string_view rest = *environment;
  while (!rest.empty()) {
    const size_t end = rest.find('\0');
    if (rest.substr(0, end) == entry) return true;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return false;
}

// Signals `pid` only if `still` holds once a pidfd guarantees that the pid is not reused.
template <typename Predicate>
bool KillIf(pid_t pid, Predicate still) {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return false;
  const bool matches = still(pid);
  if (matches) syscall(SYS_pidfd_send_signal, fd, SIGKILL, nullptr, 0);
  close(fd);
  return matches;
}

}  // namespace

std::vector<pid_t> Descendants(pid_t root) {
  std::unordered_map<pid_t, std::vector<pid_t>> children;
  for (const pid_t pid : AllProcesses()) {
    const std::optional<Stat> stat = ReadStat(pid);
    if (stat.has_value()) children[stat->parent].push_back(pid);
  }
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

size_t KillByEnvironment(std::string_view entry) {
  size_t alive = 0;
  for (const pid_t pid : AllProcesses()) {
    if (pid == getpid() || !HasEntry(pid, entry)) continue;
    // A zombie has no environment and does not count.
    if (KillIf(pid, [&](pid_t candidate) { return HasEntry(candidate, entry); })) ++alive;
  }
  return alive;
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
