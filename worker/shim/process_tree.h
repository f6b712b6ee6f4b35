// Finding and ending the processes that a rank has forked.
#ifndef MUSTER_WORKER_SHIM_PROCESS_TREE_H_
#define MUSTER_WORKER_SHIM_PROCESS_TREE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace muster::shim {

// Children, their children and so on, zombies included. Whoever of them loses its parent stays in
// this list only if `root` is a child subreaper.
std::vector<pid_t> Descendants(pid_t root);

// SIGKILL to every descendant there is now. What they fork meanwhile is found by the next call: the
// caller repeats as their deaths are reported, until it has no child left.
void KillDescendants(pid_t root);

// SIGKILL to every child of this process, and nothing else: quick enough for a process that forks
// and exits in turn, whose newest incarnation is always our child. False when the kernel does not
// list children.
bool KillChildren();

// SIGKILL to every process but the caller that has `entry` (NAME=value) in its environment; how
// many of them still live. Finds the tree of a shim that is itself dead, whatever sessions and
// parents its processes have by now.
size_t KillByEnvironment(std::string_view entry);

// How often the kernel's out-of-memory killer struck: in this process's control group where the
// kernel counts by group, else on the whole machine. Nothing where it does not count.
std::optional<uint64_t> OomKillCount();

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_PROCESS_TREE_H_
