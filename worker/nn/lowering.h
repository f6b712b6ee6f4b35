// From a graph's layers to the operations that compute them: chooses kernels and fusions, and lays
// the parameters out.
#ifndef MUSTER_WORKER_NN_LOWERING_H_
#define MUSTER_WORKER_NN_LOWERING_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/nn/graph.h"
#include "worker/nn/operation.h"
#include "worker/nn/parameters.h"
#include "worker/nn/plan.h"

namespace muster::nn {

struct Program {
  std::vector<std::unique_ptr<Tensor>> tensors;  // the first is the input, the last the logits
  std::vector<std::unique_ptr<Operation>> operations;  // in the order of forward
  // By tensor: whether a parameter that it depends on needs its gradient.
  std::vector<bool> needs_gradient;
  FlatLayout parameters;
  FlatLayout buffers;
};

// Fuses convolution + ReLU, linear + ReLU, batch norm + ReLU (+ max pool) and ReLU + max pool;
// Flatten vanishes, since NHWC already lies flat.
absl::StatusOr<Program> Lower(const Graph& graph, const CompileOptions& options);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_LOWERING_H_
