// A job's resource request, and what a node can contribute to it.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_REQUEST_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_REQUEST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/nodes/free_node.h"
#include "coordinator/core/nodes/node.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// The number and size of a job's ranks.
struct Shape {
  uint32_t min_nodes = 1;
  uint32_t max_nodes = 1;
  uint32_t ranks_per_node = 1;
  // nullopt: the ranks of a node share all of its slots evenly, and no other job has any of them.
  std::optional<uint32_t> devices_per_rank = 1;
  // Whether ranks may be on the same GPU, if several workers of one machine offer it.
  bool share_device = false;
  // The total number of ranks, on as few nodes as possible, instead of the same number on each
  // node; 0: none.
  uint32_t total_ranks = 0;
};

Shape ShapeOf(const v1::Resources& resources);

// The acceptable kinds of slot in order of preference. A job never mixes them.
std::vector<std::string> SlotKinds(const v1::Resources& resources);

struct Request {
  Shape shape;
  std::vector<std::string> kinds;             // see SlotKinds
  std::map<std::string, std::string> select;  // labels that a node must have
  std::set<std::string> excluded;             // names of nodes that are not used
  std::set<std::string> preferred;            // names of nodes that are used first
  bool exclusive = false;                     // no other job may run on the job's nodes
  std::string gpu_model;                      // part of a GPU's name, in lower case; empty: any
  uint64_t gpu_memory_bytes = 0;              // that a GPU must have at least
};

Request RequestOf(const v1::Resources& resources);

// Returns why the request never uses the node, whatever runs on it: "label gpu is a100, not h100";
// empty if it may.
std::string WhyUnsuitable(const Request& request, const Node& node);
// Whether a slot has the GPU that the request asks for; true for slots that are not GPUs.
bool Accepts(const Request& request, const v1::Slot& slot);
// Removes the slots that the request does not accept, and all of them if it is exclusive and
// another job has slots of the node. `vacant`: as if no job ran.
void Restrict(const Request& request, const Node& node, bool vacant, FreeNode& offer);

// The ranks of a job on one node.
struct Share {
  uint32_t ranks = 0;
  uint32_t slots_per_rank = 0;

  uint32_t slots() const { return ranks * slots_per_rank; }
};

// The share of a node with `slot_count` slots of the requested kind, of which `free` are free;
// nullopt if it cannot contribute.
std::optional<Share> ShareOf(const Shape& shape, uint32_t slot_count, size_t free);

// Whether nodes with these totals suffice for the job.
bool Suffices(const Shape& shape, uint64_t nodes, uint64_t ranks);
// Whether the job could use no further node.
bool IsComplete(const Shape& shape, uint64_t nodes, uint64_t ranks);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_REQUEST_H_
