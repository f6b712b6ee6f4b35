// Chooses the nodes and slots of a job: pure functions of its resources and the nodes.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_PLACEMENT_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_PLACEMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/time/time.h"
#include "coordinator/core/nodes/free_node.h"
#include "coordinator/core/nodes/node_table.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// Returns the rank map of a job with these resources; empty when it does not fit. `share_device`
// overrides the value in `resources`. The node `avoided` is used only if the others do not suffice.
std::vector<v1::NodePlacement> Place(const v1::Resources& resources, const NodeMap& nodes,
                                     Offers offers, bool share_device,
                                     const std::string& avoided = "");

// The slots of the node that no other job can use if the placement is carried out.
uint32_t TakenSlots(const v1::NodePlacement& placement, const Node& node, bool exclusive);

// Names two ranks of the job that would be on the same GPU, if that prevents its placement or may
// prevent it; empty otherwise.
std::string SharingText(const v1::Resources& resources, const NodeMap& nodes, Offers offers);

// The decision about a job at the head of the queue. At most one member is set; if none is, the job
// waits until capacity changes.
struct Decision {
  std::vector<v1::NodePlacement> placements;  // place it
  std::string refusal;                        // fail it: no known node could ever take it
  std::optional<SteadyTime> retry_at;         // decide again by then
};
// `lease`: time after a start of the coordinator in which recorded nodes may still reconnect.
Decision Decide(const v1::Resources& resources, const NodeMap& nodes, absl::Duration lease,
                SteadyTime now, const std::string& avoided = "");

// Returns whether a job with these resources would be placed, or refused, if no other job ran.
bool FitsVacant(const v1::Resources& resources, const NodeMap& nodes);

// The time by which nodes that a restarted coordinator knows only from their records have
// reconnected or are lost; at most `now` when all have.
SteadyTime AllKnownAt(const NodeMap& nodes, absl::Duration lease, SteadyTime now);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_PLACEMENT_H_
