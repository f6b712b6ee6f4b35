// Shapes of every value in a graph.
#ifndef MUSTER_TRAINER_GRAPH_SHAPES_H_
#define MUSTER_TRAINER_GRAPH_SHAPES_H_

#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/graph/graph.h"

namespace muster::nn {

// By node. INVALID_ARGUMENT names the first node that does not fit: an input that comes later, an
// output that nobody takes, a shape that is too small, summands that differ, a number out of range,
// a name that another node has; of a part, an output that it does not have.
absl::StatusOr<std::vector<ValueShape>> InferShapes(const Graph& graph);

// Stands for the later parts among a node's consumers.
inline constexpr NodeId kLaterParts = std::numeric_limits<NodeId>::min();

// By node: those that take its output, in order; a node that takes it twice stands there twice, and
// kLaterParts at the end where it is one of the graph's outputs. Inputs must be valid, as after
// InferShapes.
std::vector<std::vector<NodeId>> Consumers(const Graph& graph);

// By node: whether it is this one, or leads nowhere but into it.
std::vector<bool> LeadingOnlyInto(NodeId node, const std::vector<std::vector<NodeId>>& consumers);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_SHAPES_H_
