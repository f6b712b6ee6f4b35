// From a graph's layers to the operations that compute them: chooses kernels and fusions, and lays
// the parameters out.
#ifndef MUSTER_TRAINER_GRAPH_LOWERING_H_
#define MUSTER_TRAINER_GRAPH_LOWERING_H_

#include "absl/status/statusor.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/program.h"

namespace muster::nn {

// Fuses what trainer/graph/fusion.h finds: convolution or linear layer + activation; batch norm
// (+ residual sum) + activation, or + ReLU + 2x2 max pool; ReLU + max pool; residual sum +
// activation. Stochastic depth becomes a part of its sum. In evaluation a batch norm becomes a part
// of the convolution before it. Flatten vanishes, since NHWC already lies flat.
//
// Activations are of the precision's type, but for the batch and the logits, which are float32;
// where an operation takes one type only, a cast comes before it.
// INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
absl::StatusOr<Program> Lower(const Graph& graph, const CompileOptions& options);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_LOWERING_H_
