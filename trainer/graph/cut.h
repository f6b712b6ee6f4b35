// Splits a model into pipeline stages.
#ifndef MUSTER_TRAINER_GRAPH_CUT_H_
#define MUSTER_TRAINER_GRAPH_CUT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/graph/graph.h"

namespace muster::nn {

// Returns the nodes at which a stage other than the first can begin, in ascending order. Any subset
// of them splits the model into stages that together compute bitwise the same values as the whole
// model. A stage begins between two operations: fused layers stay together, and so do Flatten and
// the layer before it. A stage does not begin inside a branch under stochastic depth, which is
// dropped as a whole, before the first layer with parameters, or where a later layer needs the
// batch itself. `graph` must be a valid whole model.
std::vector<NodeId> CutPoints(const Graph& graph);

// Returns the cut point before a layer, given a node's name or an operation's ("bn1..relu").
// INVALID_ARGUMENT if the layer does not exist or no stage can begin with it; the message names the
// nearest layers that a stage can begin with.
absl::StatusOr<NodeId> FindCutPoint(const Graph& graph, absl::string_view layer);

// Returns the stage of the nodes [begin, end); `begin` and `end` are cut points or ends of the
// model. Its inputs are all earlier values that it or a later stage uses. Its outputs are all
// values up to its end that a later stage uses; they are the next stage's inputs.
// INVALID_ARGUMENT if `graph` is not a valid whole model or cannot be cut there.
absl::StatusOr<Graph> CutGraph(const Graph& graph, NodeId begin, NodeId end);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_CUT_H_
