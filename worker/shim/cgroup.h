// A control group of its own for each rank, where the kernel has version 2 and lets us make one:
// whatever a rank forks is in it and stays in it, so that all of it can be ended at once.
#ifndef MUSTER_WORKER_SHIM_CGROUP_H_
#define MUSTER_WORKER_SHIM_CGROUP_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::shim {

// The group below which this process may make others: its own, as /proc/self/cgroup names it, below
// one of `mounts`. Found by trying: a group is made, and removed again. Empty when there is none,
// as with version 1 or without rights.
std::string FindDelegatedCgroup(const std::vector<std::string>& mounts = {
                                    "/sys/fs/cgroup", "/sys/fs/cgroup/unified"});

// Removes the ranks' groups below `parent` that nothing is left of: a shim that was killed could
// not. Leaves young ones alone, whose rank may be on its way.
void RemoveAbandonedCgroups(const std::string& parent);

// What the name of each rank's group begins with.
inline constexpr char kCgroupPrefix[] = "muster-";

// One group, by its path; does nothing, successfully, for an empty path. Plain file operations, so
// that a test can hand in any directory.
class Cgroup {
 public:
  explicit Cgroup(std::string path) : path_(std::move(path)) {}

  // True when the group is there and has a list of processes.
  bool Make() const;
  // Puts the calling process into it, and with it whatever it forks.
  bool Enter() const;
  // SIGKILL to everything in it, groups below it included. False when the kernel cannot do that at
  // once: then to each that is listed, which the caller repeats.
  bool Kill() const;
  std::vector<pid_t> Processes() const;
  // How often the out-of-memory killer struck in it; nothing where the kernel does not count.
  std::optional<uint64_t> OomKills() const;
  // With the groups that its processes made below it. Fails while a process is in it.
  bool Remove() const;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_CGROUP_H_
