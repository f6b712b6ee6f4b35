// The memory that the coordinator uses for jobs unless --job-memory sets it.
#ifndef MUSTER_COORDINATOR_JOB_MEMORY_H_
#define MUSTER_COORDINATOR_JOB_MEMORY_H_

#include <cstdint>
#include <string>

namespace muster {

// The memory that this process may use: that of the machine, or less if one of its cgroups
// (version 2) has a limit. `own_cgroup` is the file that names the cgroup, `cgroups` the folder
// where they are mounted.
uint64_t UsableMemory(const std::string& own_cgroup = "/proc/self/cgroup",
                      const std::string& cgroups = "/sys/fs/cgroup");

// A quarter of `usable` bytes: at least 256 MiB and at most 8 GiB.
uint64_t DefaultJobMemory(uint64_t usable);

}  // namespace muster

#endif  // MUSTER_COORDINATOR_JOB_MEMORY_H_
