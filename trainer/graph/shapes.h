// Infers and checks the shapes of all values in a graph.
#ifndef MUSTER_TRAINER_GRAPH_SHAPES_H_
#define MUSTER_TRAINER_GRAPH_SHAPES_H_

#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/graph/graph.h"

namespace muster::nn {

// Returns shapes by node. INVALID_ARGUMENT names the first invalid node: its input comes later, its
// output is unused, a shape is too small, summands differ, a number is out of range, or its name is
// not unique; for a stage also an output that does not exist.
absl::StatusOr<std::vector<ValueShape>> InferShapes(const Graph& graph);

// Represents the later stages among a node's consumers.
inline constexpr NodeId kLaterStages = std::numeric_limits<NodeId>::min();

// Returns, by node, the nodes that use its output, in order. A node that uses it twice is listed
// twice; kLaterStages comes last for outputs of the graph. Inputs must be valid, as after
// InferShapes.
std::vector<std::vector<NodeId>> Consumers(const Graph& graph);

// Returns, by node, whether it is `node` or all paths from it lead into `node`.
std::vector<bool> LeadingOnlyInto(NodeId node, const std::vector<std::vector<NodeId>>& consumers);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_SHAPES_H_
