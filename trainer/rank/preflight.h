// Checks that all nodes of a job can reach each other before their ranks connect. A firewall or a
// wrong address would otherwise only cause a timeout in the collective library; this check names
// the two nodes.
#ifndef MUSTER_TRAINER_RANK_PREFLIGHT_H_
#define MUSTER_TRAINER_RANK_PREFLIGHT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"
#include "proto/muster/v1/worker.pb.h"
#include "trainer/rank/control_plane.h"
#include "trainer/rank/reach.h"

namespace muster::rank {

struct PreflightOptions {
  uint32_t node_rank = 0;
  uint32_t node_count = 1;
  std::string node_name;
  std::string address;                         // address at which others reach this node
  absl::Duration timeout = absl::Seconds(15);  // limit of the whole check
  std::function<bool()> cancelled;             // see ReachOptions
};

// Called by one process per node, all with the same store. Each node listens on a port and connects
// to all nodes with lower node ranks, so that every pair is tested once. Addresses are exchanged in
// blocks through the store: each node writes one key, the first node of a block collects its block,
// and each node reads the blocks up to its own.
//
// Returns the listener for nodes with higher node ranks; keep it until they are done. Errors:
// UNAVAILABLE "node a cannot reach node b at 10.0.0.2:4711 (interface eth1): Connection refused";
// DEADLINE_EXCEEDED with the node rank that did not publish its address; CANCELLED; the store's
// errors.
absl::StatusOr<std::unique_ptr<ReachListener>> CheckNodes(const PreflightOptions& options,
                                                          collectives::KeyStore* store);

// Called by every rank: the first rank of each node runs CheckNodes, and all ranks wait until all
// nodes are done. Returns immediately if there is one node. Also returns errors of
// ControlPlane::Barrier, e.g. ABORTED.
absl::Status Preflight(const v1::World& world, const RankEnvironment& environment,
                       const std::function<bool()>& cancelled, ControlPlane* control);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_PREFLIGHT_H_
