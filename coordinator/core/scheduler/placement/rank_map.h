// Assigns ranks to nodes and slots. A pure function of the free slots: the same inventory gives the
// same ranks in whatever order nodes joined, and losing a node moves as few ranks as possible.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_RANK_MAP_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_RANK_MAP_H_

#include <vector>

#include "coordinator/core/nodes/free_node.h"
#include "coordinator/core/scheduler/placement/request.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// Chooses nodes and numbers ranks node by node, in the order of rack and name. Uses as many nodes
// as fit up to max_nodes, or as few as possible when the shape has a total number of ranks; returns
// an empty vector when the nodes do not suffice.
//
// Nodes of one rack are used if they suffice, those of the rack with the fewest such nodes; else as
// few racks as possible. Within a rack, nodes that the job prefers come first, then those with the
// fewest free slots, so that whole nodes are left to jobs that need them. Nodes of last resort are
// used only if the others do not suffice.
//
// Unless the shape shares devices, no two ranks are on the same GPU (by UUID), and GPUs that
// several nodes offer are left to nodes that have no other. Among the remaining GPUs, the ranks of
// a node get those that are close to each other: see DeviceChooser.
std::vector<v1::NodePlacement> MapRanks(const Shape& shape, std::vector<FreeNode> nodes);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_RANK_MAP_H_
