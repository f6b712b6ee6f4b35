// The cluster that this worker's ranks belong to, and the newest commit of its store that the
// worker has seen: its index, and the start of the coordinator that made it. They outlive the
// worker: a coordinator with another store, or with an older copy of it, must not stop the ranks.
#ifndef MUSTER_WORKER_AGENT_CLUSTER_IDENTITY_H_
#define MUSTER_WORKER_AGENT_CLUSTER_IDENTITY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/time.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

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

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_CLUSTER_IDENTITY_H_
