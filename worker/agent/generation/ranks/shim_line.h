// Sends lines to a shim.
#ifndef MUSTER_WORKER_AGENT_GENERATION_RANKS_SHIM_LINE_H_
#define MUSTER_WORKER_AGENT_GENERATION_RANKS_SHIM_LINE_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace muster::agent {

// The writing end of the socket of a ShimProcess, which opens and closes it. Leases are extended on
// another thread than the loop, so that a blocked loop does not end ranks. Never blocks.
// Thread-safe.
class ShimLine {
 public:
  void Open(int socket);
  // The owner closes the socket afterwards. Later lines are dropped.
  void Close();

  // A line that the socket does not accept is dropped, unless it is `essential`. Returns whether
  // something waits for Flush.
  bool Send(const std::string& line, bool essential);
  // Sends what waits and the socket accepts; returns whether something is left.
  bool Flush();
  // Replaces the deadline of the rank's lease (worker/shim/clock.h) by a later one; 0 removes it
  // for good. An earlier one has no effect: the threads that extend a lease are not ordered.
  void SetLeaseDeadline(int64_t boot_ms);

 private:
  void SendLocked(const std::string& line, bool essential) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  int socket_ ABSL_GUARDED_BY(mutex_) = -1;
  // Lines, the first perhaps in part, that the socket did not accept yet.
  std::string output_ ABSL_GUARDED_BY(mutex_);
  int64_t lease_deadline_ms_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_RANKS_SHIM_LINE_H_
