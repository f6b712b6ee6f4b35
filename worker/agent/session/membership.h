// Decides whether this worker follows the instructions of its session's coordinator.
#ifndef MUSTER_WORKER_AGENT_SESSION_MEMBERSHIP_H_
#define MUSTER_WORKER_AGENT_SESSION_MEMBERSHIP_H_

#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/time.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

// The cluster that this worker's ranks belong to, and the newest commit of its store that the
// worker has seen: its index, and the start of the coordinator that made it. They outlive the
// worker: a coordinator with another store, or with an older copy of it, must not stop the ranks.

// Not thread-safe.
class ClusterIdentity {
 public:
  // An identity on disk may be older than the one in memory by this much time. A commit index that
  // is too low is safe: at worst, a copy of the store that lacks only the last seconds is not
  // recognized.
  static constexpr absl::Duration kStoreInterval = absl::Seconds(5);

  // Loads what an earlier worker stored in the file at `path`; empty if there is none.
  explicit ClusterIdentity(std::string path);

  const std::string& cluster_id() const { return identity_.cluster_id(); }
  uint64_t commit_index() const { return identity_.commit_index(); }
  // Empty if the coordinator is of an earlier build.
  const std::string& coordinator_start() const { return identity_.coordinator_start(); }

  // Returns why a worker with live ranks must ignore the coordinator that sent the Welcome; empty
  // if it need not. A worker whose ranks belong to no cluster yet follows any coordinator. Only the
  // coordinator can recognize a copy that has as many commits as the worker has seen.
  std::string ConflictWith(const v1::Welcome& welcome) const;

  // The highest term of a coordinator of the cluster; 0: unknown.
  uint64_t term() const { return identity_.term(); }

  // Takes the identity from a Welcome and stores it on disk before returning.
  absl::Status Join(const v1::Welcome& welcome);
  // Raises the commit index, in the session of the coordinator that was joined last. Returns
  // whether Store is due.
  bool Raise(uint64_t commit_index, SteadyTime now);
  // Writes the identity to disk.
  absl::Status Store(SteadyTime now);
  // The worker holds no generation: it belongs to the next coordinator that welcomes it.
  void Forget() { identity_.Clear(); }

 private:
  const std::string path_;
  v1::Hello identity_;  // its fields on the cluster
  SteadyTime stored_;
};

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
  // Stores the state that a successor needs.
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

#endif  // MUSTER_WORKER_AGENT_SESSION_MEMBERSHIP_H_
