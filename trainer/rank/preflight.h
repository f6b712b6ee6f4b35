// Before the ranks of several nodes connect: whether the nodes reach each other at all. What a
// firewall or a wrong address does to a collective library is a time-out somewhere; here it is the
// names of two nodes.
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
  std::string address;                         // of this node, as others reach it
  absl::Duration timeout = absl::Seconds(15);  // for all of it
  std::function<bool()> cancelled;             // as in ReachOptions
};

// One process of each node calls it, all with the same store. Each node listens on a port of its
// own and connects to all nodes of lower ranks, so that every pair is tried once. Addresses go
// through the store in blocks: each node puts one key, the first node of a block gathers it, each
// gets the blocks up to its own.
//
// OK gives what answers the nodes of higher ranks; to be kept until they are done. Errors:
// UNAVAILABLE "node a cannot reach node b at 10.0.0.2:4711 (interface eth1): Connection refused";
// DEADLINE_EXCEEDED names the node rank that told no address; CANCELLED; the store's own.
absl::StatusOr<std::unique_ptr<ReachListener>> CheckNodes(const PreflightOptions& options,
                                                          collectives::KeyStore* store);

// The same for a rank: the first of each node checks, and all wait until all nodes have. Nothing
// where there is one node. ABORTED and others of ControlPlane::Barrier.
absl::Status Preflight(const v1::World& world, const RankEnvironment& environment,
                       const std::function<bool()>& cancelled, ControlPlane* control);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_PREFLIGHT_H_
