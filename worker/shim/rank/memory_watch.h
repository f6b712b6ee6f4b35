// Samples the memory of a rank's processes, and reports it to the workers when it has changed
// noticeably.
#ifndef MUSTER_WORKER_SHIM_RANK_MEMORY_WATCH_H_
#define MUSTER_WORKER_SHIM_RANK_MEMORY_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "worker/shim/cgroup.h"

namespace muster::shim {

// The sum of the resident memory of all descendants of `root`.
uint64_t ResidentBytes(pid_t root);

// Methods that return a string return a line for the workers, or "".
class MemoryWatch {
 public:
  // An interval of 0 disables everything.
  explicit MemoryWatch(int64_t interval_ms) : interval_ms_(interval_ms) {}

  // Time until OnTimer is to be called: soon after the start, for the rank's program to load, then
  // at the interval; negative: never.
  int64_t first_ms() const;
  int64_t interval_ms() const { return interval_ms_ > 0 ? interval_ms_ : -1; }
  // Samples the group, or, if it does not count memory, the descendants of this process.
  std::string OnTimer(const Cgroup& group);
  // As OnTimer, for a sample. Changes of less than 5 % or 1 MiB are not reported.
  std::string OnSample(uint64_t bytes);
  // The line for a worker that has just connected.
  std::string StateLine() const;

 private:
  const int64_t interval_ms_;
  uint64_t reported_bytes_ = 0;
};

}  // namespace muster::shim

#endif  // MUSTER_WORKER_SHIM_RANK_MEMORY_WATCH_H_
