#include "worker/shim/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string_view>

#include "common/files/owned_fd.h"
#include "worker/shim/fields.h"

namespace muster::shim {
namespace {

bool WriteTo(const std::string& path, std::string_view text) {
  const OwnedFd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file.get() >= 0 &&
         write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// The group of this process in the version 2 hierarchy (the line `0::/path`), without
// kDaemonCgroup.
std::string OwnPath() {
  const std::string groups = "\n" + ReadFile("/proc/self/cgroup").value_or("");
  const size_t at = groups.find("\n0::");
  if (at == std::string::npos) return "";
  const size_t start = at + 4;
  std::string path = groups.substr(start, groups.find('\n', start) - start);
  const std::string leaf = std::string("/") + kDaemonCgroup;
  if (path.size() >= leaf.size() && path.substr(path.size() - leaf.size()) == leaf) {
    path.resize(std::max<size_t>(path.size() - leaf.size(), 1));
  }
  return path;
}

bool HasWord(const std::string& list, std::string_view word) {
  std::istringstream words(list);
  for (std::string next; words >> next;) {
    if (next == word) return true;
  }
  return false;
}

bool RemoveTree(const std::string& path) {
  if (DIR* directory = opendir(path.c_str())) {
    while (const dirent* entry = readdir(directory)) {
      const std::string name = entry->d_name;
      if (entry->d_type == DT_DIR && name != "." && name != "..") RemoveTree(path + "/" + name);
    }
    closedir(directory);
  }
  return rmdir(path.c_str()) == 0 || errno == ENOENT;
}

}  // namespace

std::string FindDelegatedCgroup(const std::vector<std::string>& mounts) {
  const std::string own = OwnPath();
  if (own.empty()) return "";
  for (const std::string& mount : mounts) {
    std::string group = mount + (own == "/" ? "" : own);
    // This file exists only in version 2.
    if (access((group + "/cgroup.controllers").c_str(), F_OK) != 0) continue;
    const Cgroup probe(group + "/" + std::string(kCgroupPrefix) + "probe-" +
                       std::to_string(getpid()));
    const bool ok = probe.Make() && access((probe.path() + "/cgroup.procs").c_str(), W_OK) == 0;
    probe.Remove();
    if (ok) return group;
  }
  return "";
}

std::string EnableControllers(const std::string& parent) {
  if (parent.empty()) return "cgroup v2 is not delegated to the worker";
  const std::string available = ReadFile(parent + "/cgroup.controllers").value_or("");
  for (const char* controller : {"memory", "pids"}) {
    if (!HasWord(available, controller)) {
      return std::string("the controller ") + controller + " is not delegated to the group " +
             parent;
    }
  }
  const std::string enabled = parent + "/cgroup.subtree_control";
  const auto all_enabled = [&enabled] {
    const std::string now = ReadFile(enabled).value_or("");
    return HasWord(now, "memory") && HasWord(now, "pids");
  };
  if (all_enabled()) return "";
  if (WriteTo(enabled, "+memory +pids")) return "";
  if (errno == EBUSY) {
    return "the group " + parent + " contains the worker itself; start the worker in the group " +
           kDaemonCgroup + " below it (DelegateSubgroup=worker in a systemd unit)";
  }
  return "cannot write " + enabled + ": " + std::strerror(errno);
}

void RemoveAbandonedCgroups(const std::string& parent) {
  constexpr time_t kYoungSeconds = 60;
  DIR* directory = parent.empty() ? nullptr : opendir(parent.c_str());
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) {
    const std::string path = parent + "/" + entry->d_name;
    struct stat status = {};
    if (std::string_view(entry->d_name).rfind(kCgroupPrefix, 0) == 0 &&
        CounterIn(path + "/cgroup.events", "populated").value_or(0) == 0 &&
        stat(path.c_str(), &status) == 0 && status.st_mtime + kYoungSeconds < time(nullptr)) {
      RemoveTree(path);
    }
  }
  closedir(directory);
}

bool Cgroup::Make() const {
  if (path_.empty()) return true;
  if (mkdir(path_.c_str(), 0755) != 0 && errno != EEXIST) return false;
  return access((path_ + "/cgroup.procs").c_str(), F_OK) == 0;
}

bool Cgroup::Limit(const CgroupLimits& limits) const {
  if (limits.memory_bytes != 0) {
    if (!WriteTo(path_ + "/memory.max", std::to_string(limits.memory_bytes)) ||
        !WriteTo(path_ + "/memory.oom.group", "1")) {
      return false;
    }
    WriteTo(path_ + "/memory.swap.max", "0");  // absent without swap accounting
  }
  return limits.pids == 0 || WriteTo(path_ + "/pids.max", std::to_string(limits.pids));
}

pid_t Cgroup::Fork() const {
  // Directly into the group, because moving a process later takes the kernel milliseconds.
  const OwnedFd group(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (group.get() >= 0) {
    clone_args arguments = {};
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = static_cast<uint64_t>(group.get());
    const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof(arguments)));
    if (pid >= 0) return pid;
  }
  const pid_t pid = fork();
  if (pid == 0) Enter();
  return pid;
}

bool Cgroup::Enter() const { return path_.empty() || WriteTo(path_ + "/cgroup.procs", "0"); }

bool Cgroup::Kill() const {
  if (path_.empty()) return true;
  if (WriteTo(path_ + "/cgroup.kill", "1")) return true;
  for (const pid_t pid : Processes()) kill(pid, SIGKILL);
  return false;
}

std::vector<pid_t> Cgroup::Processes() const {
  std::vector<pid_t> pids;
  if (path_.empty()) return pids;
  const std::string text = ReadFile(path_ + "/cgroup.procs").value_or("");
  const char* at = text.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    const long pid = std::strtol(at, &end, 10);
    // 0 means a process outside of our pid namespace.
    if (end == at) break;
    if (pid > 0) pids.push_back(static_cast<pid_t>(pid));
    at = end;
    while (*at == '\n') ++at;
  }
  return pids;
}

std::optional<uint64_t> Cgroup::MemoryBytes() const {
  if (path_.empty()) return std::nullopt;
  const std::optional<std::string> text = ReadFile(path_ + "/memory.current");
  if (!text.has_value()) return std::nullopt;
  const uint64_t current = std::strtoull(text->c_str(), nullptr, 10);
  const uint64_t cache = CounterIn(path_ + "/memory.stat", "inactive_file").value_or(0);
  return current - std::min(current, cache);
}

std::optional<uint64_t> Cgroup::OomKills() const {
  if (path_.empty()) return std::nullopt;
  return CounterIn(path_ + "/memory.events", "oom_kill");
}

bool Cgroup::Remove() const { return path_.empty() || RemoveTree(path_); }

}  // namespace muster::shim
