// Marks, finds and kills the processes that a rank has forked.
#ifndef MUSTER_WORKER_SHIM_PROCESS_TREE_H_
#define MUSTER_WORKER_SHIM_PROCESS_TREE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::shim {

// The mark is the hard limit of file locks (RLIMIT_LOCKS), which Linux does not enforce. Processes
// inherit it whatever they do with their environment, session, parent and descriptors; without
// privileges they can lower it, but not restore it; and /proc shows it to every user. The number is
// random: a process that has it descends from the rank's shim or from a companion. It is no secret.
// A process escapes only by changing this limit.

// A new mark. 0 if this process cannot set one, because its own limit is too low or the system does
// not permit it.
uint64_t NewMark();

// Marks this process and its future children. Returns false, with errno, if that is not permitted.
bool SetMark(uint64_t mark);

// NAME=value in the environment of the rank's shim and companions, by which they are found before
// they have called SetMark. The rank's own processes do not have it.
std::string MarkEntry(uint64_t mark);

// All descendants of `root`, zombies included. Descendants that lose their parent are listed only
// if `root` is a child subreaper.
std::vector<pid_t> Descendants(pid_t root);

// Sends SIGKILL to all current descendants. Processes that they fork meanwhile are found by the
// next call: the caller repeats as it reaps children, until it has none left.
void KillDescendants(pid_t root);

// Sends SIGKILL to the children of this process only: fast enough for a process that repeatedly
// forks and exits, whose newest incarnation is always our child. False if the kernel does not list
// children.
bool KillChildren();

struct Sweep {
  std::vector<pid_t> alive;  // have been sent SIGKILL, if this process may signal them
  // Every process was examined. Otherwise more may be alive: descriptors or memory were short, or a
  // process ended just before it was examined and may have forked.
  bool complete = true;
};

// Sends SIGKILL to all processes except the caller that have `entry` (NAME=value) in their
// environment or, if `mark` is not 0, that carry the mark (see process_tree.h). No such process is
// left once a sweep is complete and has found none alive. Finds the processes of a dead shim,
// whatever their sessions and parents are.
Sweep KillMarked(std::string_view entry, uint64_t mark);

// The same by the environment only; returns how many are still alive.
inline size_t KillByEnvironment(std::string_view entry) {
  return KillMarked(entry, 0).alive.size();
}

// Number of kills by the kernel's out-of-memory killer: in this process's control group if the
// kernel counts by group, else on the whole machine. Nothing if it does not count.
std::optional<uint64_t> OomKillCount();

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_PROCESS_TREE_H_
