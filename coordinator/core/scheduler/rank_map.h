// Assigns ranks to nodes and slots. A pure function of the free slots: the same inventory gives the
// same ranks in whatever order nodes joined, and the loss of a node moves only the ranks it must.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_RANK_MAP_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_RANK_MAP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "coordinator/core/nodes/free_node.h"
#include "proto/muster/v1/job.pb.h"
#include "proto/muster/v1/store.pb.h"

namespace muster::core {

// What a job requests of the cluster.
struct Shape {
  uint32_t min_nodes = 1;
  uint32_t max_nodes = 1;
  uint32_t ranks_per_node = 1;
  // None: the ranks of a node share all of its slots evenly, and no other job has any.
  std::optional<uint32_t> devices_per_rank = 1;
  // Ranks may be on the same GPU, which several workers of one machine offer.
  bool share_device = false;
};

Shape ShapeOf(const v1::Resources& resources);

// The kinds of slot that will do, the best first. A job never mixes them.
std::vector<std::string> SlotKinds(const v1::Resources& resources);

// Numbers within names count as numbers: node-2 comes before node-10.
bool NaturalLess(absl::string_view a, absl::string_view b);

// The order in which nodes are taken.
bool IsPlacedBefore(const FreeNode& a, const FreeNode& b);

// Slots that one rank takes on a node of `slot_count` slots of the kind asked for, of which `free`
// are free; none when the node cannot take its share of the shape.
std::optional<uint32_t> SlotsPerRank(const Shape& shape, uint32_t slot_count, size_t free);

// Ranks numbered node by node, over the largest number of nodes that fits, in the order of rack and
// name. All or nothing: empty when fewer than min_nodes fit. Unless they share, no two ranks are on
// the same GPU by its UUID, and GPUs that several nodes offer are left to those that have no other.
// Of what is left a node's ranks get GPUs that are close to each other: see DeviceChooser.
std::vector<v1::NodePlacement> MapRanks(const Shape& shape, std::vector<FreeNode> nodes);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_RANK_MAP_H_
