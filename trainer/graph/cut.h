// A model cut into parts, one for each stage of a pipeline.
#ifndef MUSTER_TRAINER_GRAPH_CUT_H_
#define MUSTER_TRAINER_GRAPH_CUT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "trainer/graph/graph.h"

namespace muster::nn {

// The nodes that a part other than the first can begin with, ascending; any of them together cut
// the model into parts that compute, value by value, what it computes whole. A part begins between
// two operations: layers that are computed together stay together, and so do Flatten and the layer
// before it. It does not begin inside a branch under stochastic depth, which is dropped as a whole,
// before the first layer with parameters, nor where the batch itself is needed behind it.
// Of a valid whole model.
std::vector<NodeId> CutPoints(const Graph& graph);

// The cut point before a layer: a node's name, or an operation's ("bn1..relu"). INVALID_ARGUMENT
// where there is no such layer, and where no part can begin with it; names the nearest ones that
// there are.
absl::StatusOr<NodeId> FindCutPoint(const Graph& graph, absl::string_view layer);

// The part from node `begin` to before node `end`, each of which is a cut point or an end of the
// model. Its inputs are all values from before it that it or a later part takes, its outputs all up
// to its end that a later part takes: the next part's inputs.
// INVALID_ARGUMENT: not a valid whole model, or it cannot be cut there.
absl::StatusOr<Graph> CutGraph(const Graph& graph, NodeId begin, NodeId end);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_CUT_H_
