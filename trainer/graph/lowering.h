// Lowers a graph's layers to operations: selects kernels and fusions, and lays out the parameters.
#ifndef MUSTER_TRAINER_GRAPH_LOWERING_H_
#define MUSTER_TRAINER_GRAPH_LOWERING_H_

#include "absl/status/statusor.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/program.h"

namespace muster::nn {

// Applies the fusions of trainer/graph/fusion.h: convolution or linear layer + activation; batch
// norm (+ residual sum) + activation, or + ReLU + 2x2 max pool; ReLU + max pool; residual sum +
// activation. Stochastic depth is fused into its sum. In evaluation a batch norm is folded into the
// convolution before it. Flatten needs no operation, since NHWC data are already flat.
//
// Activations have the precision's type, except the batch and the logits, which are float32; a cast
// is inserted before an operation that needs another type.
// Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
absl::StatusOr<Program> Lower(const Graph& graph, const CompileOptions& options);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_LOWERING_H_
