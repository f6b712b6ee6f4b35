// A job's demand, a node's supply, and the node's contribution to the job, in slots.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_DEMAND_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_DEMAND_H_

#include <cstdint>
#include <string>

#include "coordinator/core/nodes/node.h"
#include "coordinator/core/scheduler/placement/request.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

struct Demand {
  Request request;
  // The job needs this many nodes, or, if it gives a total number of ranks, this many ranks.
  uint32_t units = 1;
  uint32_t most_units = 1;  // that it can use
  bool in_ranks = false;    // units are ranks
  bool by_node = false;     // how many slots it takes depends on the sizes of its nodes
};

Demand DemandOf(const v1::Resources& resources);

// The least number of slots that the job takes on nodes of any size: 1 for each rank that takes all
// slots of a node. Cluster::LeastSlotsOf knows the nodes.
uint32_t LeastSlots(const Demand& demand);

// The slots of one kind that a node has for a job.
struct Supply {
  uint16_t usable = 0;  // if no other job ran
  uint16_t free = 0;    // now
  uint16_t whole = 0;   // of all kinds, if no other job ran; for exclusive jobs only
};

// The slots of `node` that the job accepts.
Supply SupplyOf(const Request& request, const Node& node, const std::string& kind);

// A node's contribution to a job.
struct Contribution {
  uint32_t units = 0;
  uint32_t slots = 0;  // that the job takes for them
};
// The node's contribution if `free` of its slots are free: at most `most` units, those that the
// job still lacks.
Contribution ContributionOf(const Demand& demand, uint32_t usable, uint32_t free, uint32_t most);
// The slots of the node that no other job can use then; 0 if it contributes nothing.
uint32_t TakenOf(const Demand& demand, const Supply& supply, uint32_t free);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_DEMAND_H_
