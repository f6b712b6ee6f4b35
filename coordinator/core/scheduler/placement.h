// Which nodes and slots a job gets: pure functions of its resources and the nodes.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/time.h"
#include "coordinator/core/nodes/node_table.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// Which slots of a node count: those that are free now, or all that an idle node would have.
enum class Offers { kNow, kIdle };

// The rank map of a job with these resources; empty when it does not fit. `share_device` takes the
// place of the resources' own.
std::vector<v1::NodePlacement> Place(const v1::Resources& resources, const NodeMap& nodes,
                                     Offers offers, bool share_device);

// Which two ranks of the job would be on one GPU, where that keeps it from being placed, or may;
// empty otherwise.
std::string SharingText(const v1::Resources& resources, const NodeMap& nodes, Offers offers);

// What to do with the job at the head of the queue. Exactly one of the members is set, or none: the
// job waits until capacity changes.
struct Decision {
  std::vector<v1::NodePlacement> placements;  // place it
  std::string refusal;                        // fail it: no known node could ever take it
  std::optional<SteadyTime> retry_at;         // decide again by then
};
// `lease`: for how long after a start of the coordinator recorded nodes may still come back.
Decision Decide(const v1::Resources& resources, const NodeMap& nodes, absl::Duration lease,
                SteadyTime now);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_H_
