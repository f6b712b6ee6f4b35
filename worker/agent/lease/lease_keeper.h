// Keeps the lease deadlines of this node's ranks: the times at which their shims end them because
// the coordinator may start them elsewhere.
//
// An acknowledged heartbeat moves a deadline to the job's lease after the heartbeat was sent, less
// a margin. After a third of a lease without acknowledgement, the keeper asks peers, repeatedly. An
// answer comes from the coordinator: ranks that it declared lost are ended at once, and the others'
// deadline becomes the time that it left them, less the margin. Without an answer, the coordinator
// counts as dead and the deadline moves on; on_lost_coordinator decides how long such ranks run.
#ifndef MUSTER_WORKER_AGENT_LEASE_LEASE_KEEPER_H_
#define MUSTER_WORKER_AGENT_LEASE_LEASE_KEEPER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/time.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

// All times are on CLOCK_BOOTTIME; see worker/shim/fence.h. Not thread-safe.
class LeaseKeeper {
 public:
  struct Lease {
    std::string job_id;
    uint64_t generation = 0;
    absl::Duration length;  // Launch.job_lease
  };
  struct Outside {
    // The generations with ranks that run here and a lease.
    std::function<std::vector<Lease>()> held;
    std::function<void(const Lease& lease, SteadyTime deadline)> set_deadline;
    // Ends the generation's ranks without a grace period.
    std::function<void(const Lease& lease)> end;
    // Asks the peers and calls `done` once, after this call has returned and within `patience`:
    // with the first answer, or nothing if no peer has one.
    std::function<void(const v1::LeaseQuestion& question, absl::Duration patience,
                       std::function<void(std::optional<v1::LeaseAnswer>)> done)>
        ask;
  };

  LeaseKeeper(Outside outside, SteadyTime now);

  // The coordinator has acknowledged a Hello or heartbeat that was sent at `sent`.
  void OnAcknowledged(SteadyTime sent);
  // The deadline for ranks that are about to be started.
  SteadyTime DeadlineFor(absl::Duration length) const;
  // Asks peers if an acknowledgement is overdue. Called at least twice a second.
  void Tick(SteadyTime now);
  // When the newest acknowledged message was sent.
  SteadyTime acknowledged() const { return acknowledged_; }

 private:
  void OnAnswer(const std::vector<Lease>& asked, SteadyTime asked_at,
                const std::optional<v1::LeaseAnswer>& answer);

  const Outside outside_;
  SteadyTime acknowledged_;
  SteadyTime next_question_;
  bool asking_ = false;
};

// The time before the end of a lease at which the ranks are killed: for clocks that run at
// different rates, timers that fire late, and processes that take time to end.
absl::Duration LeaseMargin(absl::Duration length);

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_LEASE_KEEPER_H_
