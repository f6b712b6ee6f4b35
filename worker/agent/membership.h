// Decides whether this worker follows the instructions of its session's coordinator.
#ifndef MUSTER_WORKER_AGENT_MEMBERSHIP_H_
#define MUSTER_WORKER_AGENT_MEMBERSHIP_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "common/time.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/cluster_identity.h"

namespace muster::agent {

// A worker with live ranks that connects to a coordinator of another cluster, or by one with an
// older store, is in conflict: it keeps its ranks, sends only Hello and heartbeats, and waits until
// the right coordinator returns, an operator ends the conflict, or no rank is left.
//
// Must be used on the agent's loop, except Check.
class Membership {
 public:
  // `identity_path`: see ClusterIdentity.
  explicit Membership(std::string identity_path) : identity_(std::move(identity_path)) {}

  // Adds the identity to a Hello. A worker that holds no generation forgets its cluster.
  void Describe(bool holds_generations, v1::Hello& hello);
  // Adds to a question about leases what Obeys needs in its answer.
  void Describe(v1::LeaseQuestion& question) const;
  void OnWelcome(const v1::Welcome& welcome, bool has_live_ranks);
  // The coordinator does not accept this worker, which keeps its live ranks and tries again.
  void OnRefused(const absl::Status& status) { SetConflict(std::string(status.message())); }
  // Whether an answer about leases comes from the store that the ranks belong to. Earlier builds of
  // the coordinator do not name it.
  bool Obeys(const v1::LeaseAnswer& answer) const;
  void OnHeartbeatAck(const v1::HeartbeatAck& ack, SteadyTime now);
  // Whether a coordinator with a higher term has been seen, so that this one must not be obeyed.
  // Coordinators of earlier builds have no term (0).
  bool IsOutdated(uint64_t term) const { return term != 0 && term < identity_.term(); }
  // An operator has ended the conflict. The worker must open a new session.
  void OnJoinCluster(const v1::JoinCluster& join);
  // Stores what a successor needs.
  void Flush(SteadyTime now);

  bool in_conflict() const { return in_conflict_; }
  // OK, or FAILED_PRECONDITION with the conflict. Thread-safe.
  absl::Status Check() const;

 private:
  void SetConflict(std::string conflict);

  ClusterIdentity identity_;
  std::string coordinator_start_;  // start number of the session's coordinator
  bool in_conflict_ = false;
  mutable absl::Mutex mutex_;
  std::string conflict_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_MEMBERSHIP_H_
