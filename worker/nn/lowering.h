// From a graph's layers to the operations that compute them: chooses kernels and fusions, and lays
// the parameters out.
#ifndef MUSTER_WORKER_NN_LOWERING_H_
#define MUSTER_WORKER_NN_LOWERING_H_

#include "absl/status/statusor.h"
#include "worker/nn/graph.h"
#include "worker/nn/plan.h"
#include "worker/nn/program.h"

namespace muster::nn {

// Fuses convolution + ReLU, linear + ReLU, batch norm + ReLU (+ 2x2 max pool), batch norm + ReLU6,
// ReLU + max pool and Add + ReLU or ReLU6, wherever nobody else takes the value in between;
// stochastic depth becomes a part of its Add. Flatten vanishes, since NHWC already lies flat.
// INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
absl::StatusOr<Program> Lower(const Graph& graph, const CompileOptions& options);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_LOWERING_H_
