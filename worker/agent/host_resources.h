// CPUs and memory of the machine.
#ifndef MUSTER_WORKER_AGENT_HOST_RESOURCES_H_
#define MUSTER_WORKER_AGENT_HOST_RESOURCES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace muster::agent {

// Number of CPUs that this process may use.
uint32_t CpuCount();

// Size of the physical memory.
uint64_t MemoryBytes();

// Memory that new processes can use without swapping, as in `meminfo`. Errors: NOT_FOUND.
absl::StatusOr<uint64_t> AvailableMemoryBytes(const std::string& meminfo = "/proc/meminfo");

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_HOST_RESOURCES_H_
