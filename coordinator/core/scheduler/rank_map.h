// Assigns ranks to nodes and slots. A pure function of the free slots: the same inventory gives the
// same ranks in whatever order nodes joined, and losing a node moves as few ranks as possible.
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

// The shape of a job's resource request.
struct Shape {
  uint32_t min_nodes = 1;
  uint32_t max_nodes = 1;
  uint32_t ranks_per_node = 1;
  // nullopt: the ranks of a node share all of its slots evenly, and no other job has any of them.
  std::optional<uint32_t> devices_per_rank = 1;
  // Whether ranks may be on the same GPU, if several workers of one machine offer it.
  bool share_device = false;
};

Shape ShapeOf(const v1::Resources& resources);

// The acceptable kinds of slot in order of preference. A job never mixes them.
std::vector<std::string> SlotKinds(const v1::Resources& resources);

// Natural sort order: numbers within names compare as numbers, so node-2 comes before node-10.
bool NaturalLess(absl::string_view a, absl::string_view b);

// The order in which nodes are filled.
bool IsPlacedBefore(const FreeNode& a, const FreeNode& b);

// The number of slots that one rank takes on a node with `slot_count` slots of the requested kind,
// of which `free` are free; nullopt when the node cannot take its share of the shape.
std::optional<uint32_t> SlotsPerRank(const Shape& shape, uint32_t slot_count, size_t free);

// Numbers ranks node by node, over the largest number of nodes that fits, in the order of rack and
// name. Returns an empty vector when fewer than min_nodes fit. Unless the shape shares devices, no
// two ranks are on the same GPU (by UUID), and GPUs that several nodes offer are left to nodes that
// have no other. Among the remaining GPUs, the ranks of a node get those that are close to each
// other: see DeviceChooser.
std::vector<v1::NodePlacement> MapRanks(const Shape& shape, std::vector<FreeNode> nodes);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_RANK_MAP_H_
