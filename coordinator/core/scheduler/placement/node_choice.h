// Chooses the nodes of a job: see MapRanks in rank_map.h.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_NODE_CHOICE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_NODE_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "coordinator/core/nodes/free_node.h"
#include "coordinator/core/scheduler/placement/request.h"

namespace muster::core {

// The order in which nodes are filled within a rack, and in which ranks are numbered.
bool IsPlacedBefore(const FreeNode& a, const FreeNode& b);

// Iterates over the nodes that can take a share, best first.
class NodeChoice {
 public:
  // `nodes` must outlive the choice.
  NodeChoice(const Shape& shape, const std::vector<FreeNode>& nodes);

  // Whether the job has all that it can use, or no node is left.
  bool IsOver(size_t nodes, uint32_t ranks) const;
  // Returns the next node of a job that has `ranks` ranks so far.
  const FreeNode& Next(uint32_t ranks);

 private:
  struct Candidate {
    const FreeNode* node;
    Share share;
  };

  static bool IsChosenBefore(const Shape& shape, const Candidate& a, const Candidate& b);
  // Orders the candidates by rack, then within each rack.
  void Order(std::vector<Candidate> candidates);

  const Shape shape_;
  std::vector<Candidate> order_;
  size_t next_ = 0;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_NODE_CHOICE_H_
