// The mark of a rank: a number that all of its processes carry, and no other process of the
// machine.
#ifndef MUSTER_WORKER_SHIM_MARK_H_
#define MUSTER_WORKER_SHIM_MARK_H_

#include <cstdint>
#include <string>

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

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_MARK_H_
