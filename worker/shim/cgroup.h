// A control group per rank, on kernels with cgroup version 2 where this process may create groups:
// it contains all processes that a rank forks, so that all of them can be killed at once.
#ifndef MUSTER_WORKER_SHIM_CGROUP_H_
#define MUSTER_WORKER_SHIM_CGROUP_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::shim {

// The group below which this process may create groups: its own, according to /proc/self/cgroup,
// below one of `mounts`. Determined by creating and removing a group. Empty if there is none, as
// with cgroup version 1 or without permission.
std::string FindDelegatedCgroup(const std::vector<std::string>& mounts = {
                                    "/sys/fs/cgroup", "/sys/fs/cgroup/unified"});

// Removes empty groups of ranks below `parent`, which a killed shim could not remove. Skips
// recently created groups, whose rank may still be starting.
void RemoveAbandonedCgroups(const std::string& parent);

// Enables the memory and pids controllers for the groups below `parent`. The kernel refuses that
// while `parent` itself contains processes: the worker must have been started in kDaemonCgroup
// below it. (It does not move there by itself, because systemd could then not start its successor.)
// Returns why the controllers are unavailable, or an empty string.
std::string EnableControllers(const std::string& parent);

// Prefix of the names of ranks' groups.
inline constexpr char kCgroupPrefix[] = "muster-";
// Name of the worker's own group, a sibling of the ranks' groups, if it has one.
inline constexpr char kDaemonCgroup[] = "worker";

// Limits of a group; 0: none.
struct CgroupLimits {
  uint64_t memory_bytes = 0;
  uint64_t pids = 0;  // processes and threads
};

// One group, identified by its path; with an empty path, all operations succeed without effect.
// Uses plain file operations, so that a test can use any directory.
class Cgroup {
 public:
  explicit Cgroup(std::string path) : path_(std::move(path)) {}

  // Creates the group. Returns true if it exists and has a list of processes.
  bool Make() const;
  // Applies the limits. Memory cannot be swapped out to evade them, and all processes of the group
  // are killed when it runs out of memory. Returns false, with errno, without the controllers.
  bool Limit(const CgroupLimits& limits) const;
  // Forks like fork(), with the child in the group if the kernel permits it.
  pid_t Fork() const;
  // Moves the calling process, and thus its future children, into the group.
  bool Enter() const;
  // Sends SIGKILL to all processes in the group and in groups below it. Returns false if the kernel
  // cannot do that atomically; then it signals each listed process, and the caller must repeat the
  // call.
  bool Kill() const;
  std::vector<pid_t> Processes() const;
  // Memory that the group uses, without inactive page cache; nothing without the memory controller.
  std::optional<uint64_t> MemoryBytes() const;
  // Number of kills by the out-of-memory killer in the group; nothing if the kernel does not count
  // them.
  std::optional<uint64_t> OomKills() const;
  // Removes the group and the groups that its processes created below it. Fails while it contains a
  // process.
  bool Remove() const;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_CGROUP_H_
