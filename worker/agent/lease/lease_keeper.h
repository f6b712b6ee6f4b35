// Keeps the lease deadlines of this node's ranks: the times at which their shims end them because
// the coordinator may start them elsewhere.
//
// A deadline is the job's lease, less a margin, after the newest *evidence* that the coordinator
// has not declared the ranks lost. Evidence is dated from when its probe was sent:
// - an acknowledgement of the coordinator, or its answer to a question that a peer forwarded;
// - a refusal: the coordinator's address refused a new connection, of this worker or of a peer;
// - vouchers of more than half of the fence set, this node included.
// A peer that merely cannot reach the coordinator either is no evidence: half a cluster behind a
// failed switch agrees on that, too. docs/design/liveness.md explains why these rules are safe.
//
// After a third of a lease without evidence, the keeper looks for some, repeatedly. Ranks that the
// coordinator has declared lost are ended at once.
#ifndef MUSTER_WORKER_AGENT_LEASE_LEASE_KEEPER_H_
#define MUSTER_WORKER_AGENT_LEASE_LEASE_KEEPER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/time/time.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

// All times are on CLOCK_BOOTTIME; see worker/shim/clock.h. Not thread-safe.
class LeaseKeeper {
 public:
  struct Lease {
    std::string job_id;
    uint64_t generation = 0;
    absl::Duration length;  // Launch.job_lease
    // Whether the ranks have a deadline. Those of other jobs continue when they are cut off, until
    // the coordinator reports that they were declared lost.
    bool has_deadline = true;
  };
  struct Outside {
    // The generations with ranks that run here and a lease.
    std::function<std::vector<Lease>()> held;
    std::function<void(const Lease& lease, SteadyTime deadline)> set_deadline;
    // Ends the generation's ranks without a grace period.
    std::function<void(const Lease& lease)> end;
    // Asks the peers: calls `answered` for each that answers within `patience`, then `done`. Calls
    // neither before it has returned.
    std::function<void(const v1::LeaseQuestion& question, absl::Duration patience,
                       std::function<void(const v1::PeerAnswer&)> answered,
                       std::function<void()> done)>
        ask;
    // Connects to the coordinator's address, and calls `done` if it refuses the connection within
    // `patience`.
    std::function<void(absl::Duration patience, std::function<void()> done)> probe;
    // The fence set that this worker has stored.
    std::function<const v1::FenceSet&()> fence_set;
  };

  LeaseKeeper(std::string node_name, Outside outside, SteadyTime now);

  // The coordinator has acknowledged a Hello or heartbeat that was sent at `sent`.
  void OnAcknowledged(SteadyTime sent);
  // The coordinator's address has refused a connection that was begun at `sent`.
  void OnRefused(SteadyTime sent);
  // The deadline for ranks that are about to be started.
  SteadyTime DeadlineFor(absl::Duration length) const;
  // Looks for evidence if some is overdue. Called at least twice a second.
  void Tick(SteadyTime now);
  // When the newest acknowledged message was sent.
  SteadyTime acknowledged() const { return acknowledged_; }
  // The newest evidence for every lease: the later of the newest acknowledgement and refusal.
  SteadyTime newest_evidence() const { return std::max(acknowledged_, refused_); }

 private:
  using Key = std::pair<std::string, uint64_t>;
  // A question and its answers.
  struct Round {
    SteadyTime asked_at;
    uint64_t fence_set = 0;  // id
    std::vector<Lease> leases;
    std::map<Key, std::set<std::string>> vouchers;  // names of nodes
  };

  SteadyTime EvidenceFor(const Lease& lease) const;
  void AddEvidence(const Lease& lease, SteadyTime time);
  void RaiseAll();
  void OnAnswer(Round& round, const v1::PeerAnswer& answer);
  void OnCoordinatorAnswer(const Round& round, const v1::LeaseAnswer& answer);
  void CountVoucher(Round& round, const Lease& lease, const std::string& node);

  const std::string node_name_;
  const Outside outside_;
  SteadyTime acknowledged_;
  SteadyTime refused_;
  std::map<Key, SteadyTime> evidence_;  // for single leases
  SteadyTime next_question_;
  bool asking_ = false;
};

// The time before the end of a lease at which the ranks are killed: for clocks that run at
// different rates, timers that fire late, and processes that take time to end.
absl::Duration LeaseMargin(absl::Duration length);

// The deadline of ranks with this lease after evidence of that time.
inline SteadyTime LeaseDeadline(SteadyTime evidence, absl::Duration length) {
  return evidence + (length - LeaseMargin(length));
}

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_LEASE_KEEPER_H_
