#include "worker/shim/mark.h"

#include <sys/random.h>
#include <sys/resource.h>

#include <algorithm>

namespace muster::shim {
namespace {

// The range of marks: larger than any limit in use, and so wide that two marks do not collide.
constexpr uint64_t kLeastMark = uint64_t{1} << 32;
constexpr uint64_t kMarkEnd = uint64_t{1} << 62;

}  // namespace

uint64_t NewMark() {
  rlimit limit = {};
  uint64_t random = 0;
  if (getrlimit(RLIMIT_LOCKS, &limit) != 0 || setrlimit(RLIMIT_LOCKS, &limit) != 0 ||
      limit.rlim_max <= 2 * kLeastMark || getentropy(&random, sizeof(random)) != 0) {
    return 0;
  }
  // Below the limit of a worker that is itself part of a rank.
  return kLeastMark + random % (std::min<uint64_t>(limit.rlim_max, kMarkEnd) - kLeastMark);
}

bool SetMark(uint64_t mark) {
  const rlimit limit = {mark, mark};
  return setrlimit(RLIMIT_LOCKS, &limit) == 0;
}

std::string MarkEntry(uint64_t mark) { return "MUSTER_SHIM_MARK=" + std::to_string(mark); }

}  // namespace muster::shim
