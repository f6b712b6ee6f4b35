#include "coordinator/job_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

namespace muster {

uint64_t UsableMemory(const std::string& own_cgroup, const std::string& cgroups) {
  uint64_t usable = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                    static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
  std::string path;
  std::ifstream lines(own_cgroup);
  while (std::getline(lines, path) && path.rfind("0::", 0) != 0) path.clear();
  if (path.empty()) return usable;
  path.erase(0, 3);
  // Each cgroup is also limited by those that contain it.
  while (true) {
    uint64_t limit = 0;
    if (std::ifstream(cgroups + path + "/memory.max") >> limit) usable = std::min(usable, limit);
    const size_t parent = path.rfind('/');
    if (parent == std::string::npos) return usable;
    path.resize(parent);
  }
}

uint64_t DefaultJobMemory(uint64_t usable) {
  return std::clamp(usable / 4, uint64_t{256} << 20, uint64_t{8} << 30);
}

}  // namespace muster
