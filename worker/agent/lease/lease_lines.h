// Extends the leases of this node's ranks as soon as the coordinator's acknowledgements arrive, on
// the thread that receives them.
#ifndef MUSTER_WORKER_AGENT_LEASE_LEASE_LINES_H_
#define MUSTER_WORKER_AGENT_LEASE_LEASE_LINES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/time.h"
#include "worker/agent/generation/ranks/shim_line.h"
#include "worker/shim/clock.h"

namespace muster::agent {

// The time on CLOCK_BOOTTIME, which advances while the machine is suspended; see
// worker/shim/clock.h. Not comparable with the times of common/time/now.h. Thread-safe.
inline SteadyTime BootNow() { return SteadyTime(absl::Milliseconds(shim::BootMs())); }

// The deadline as shims receive it.
inline int64_t ToBootMs(SteadyTime deadline) {
  return std::max<int64_t>(1, absl::ToInt64Milliseconds(deadline.since_start()));
}

// The agent's loop may be blocked: by a name service without answer, or a stalled disk. LeaseKeeper
// on the loop handles all other evidence. Never blocks. Thread-safe.
//
// The coordinator gives ranks up that do not end although their node, which is connected, was told
// to stop them. So a generation whose directive to stop waits for the loop is not extended here.
class LeaseLines {
 public:
  // Extends the lease of this shim from now on, for as long as the line exists.
  void Add(const std::string& job_id, uint64_t generation, absl::Duration lease,
           std::weak_ptr<ShimLine> line);
  // The coordinator has acknowledged a heartbeat that was sent at `sent` (BootNow).
  void OnAcknowledged(SteadyTime sent);
  // A directive to stop the generation has arrived.
  void Hold(const std::string& job_id, uint64_t generation);
  // The loop has carried it out.
  void Release(const std::string& job_id, uint64_t generation);
  // The session has ended, and with it directives that were not carried out.
  void ReleaseAll();
  // When the newest acknowledged heartbeat was sent.
  SteadyTime acknowledged() const;

 private:
  using Key = std::pair<std::string, uint64_t>;
  struct Lease {
    Key key;
    absl::Duration length;
    std::weak_ptr<ShimLine> line;
  };

  mutable absl::Mutex mutex_;
  std::vector<Lease> leases_ ABSL_GUARDED_BY(mutex_);
  std::set<Key> held_ ABSL_GUARDED_BY(mutex_);
  SteadyTime acknowledged_ ABSL_GUARDED_BY(mutex_) = SteadyTime(-absl::InfiniteDuration());
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_LEASE_LINES_H_
