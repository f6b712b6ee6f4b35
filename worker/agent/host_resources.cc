#include "worker/agent/host_resources.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "worker/shim/fields.h"

namespace muster::agent {

uint32_t CpuCount() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
  return static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

uint64_t MemoryBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

absl::StatusOr<uint64_t> AvailableMemoryBytes(const std::string& meminfo) {
  const std::string text = shim::ReadFile(meminfo).value_or("");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::ConsumePrefix(&line, "MemAvailable:")) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint64_t kibibytes = 0;
    if (!words.empty() && absl::SimpleAtoi(words[0], &kibibytes)) return kibibytes << 10;
  }
  return absl::NotFoundError(absl::StrCat(meminfo, " has no MemAvailable"));
}

}  // namespace muster::agent
