#include "trainer/rank/loader_threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace muster::rank {
namespace {

// More threads than decode for the fastest GPU would only compete with the node's other work.
constexpr uint32_t kMostThreads = 16;

uint32_t AllowedCpus(pid_t process) {
  cpu_set_t set;
  if (sched_getaffinity(process, sizeof(set), &set) != 0) return 0;
  return static_cast<uint32_t>(CPU_COUNT(&set));
}

}  // namespace

uint32_t LoaderThreads(const v1::Resources& resources, bool on_gpu, uint32_t cpus) {
  const uint32_t compute = std::max(1u, resources.threads_per_rank());
  if (!on_gpu || compute > 1) return compute;
  return std::clamp(cpus, 2u, kMostThreads + 1) - 1;
}

uint32_t CpusOfRank(uint32_t ranks) {
  const uint32_t own = AllowedCpus(0);
  // The shim, this process's parent, is never bound.
  const bool bound = own < AllowedCpus(getppid());
  return bound ? own : own / std::max(1u, ranks);
}

}  // namespace muster::rank
