// What lowering makes of a graph: the operations in order, the values between them, and the layout
// of the parameters.
#ifndef MUSTER_WORKER_NN_PROGRAM_H_
#define MUSTER_WORKER_NN_PROGRAM_H_

#include <memory>
#include <vector>

#include "worker/nn/operation.h"
#include "worker/nn/parameters.h"

namespace muster::nn {

struct Program {
  std::vector<std::unique_ptr<Tensor>> tensors;          // the first is the input
  Tensor* logits = nullptr;                              // nobody's input
  std::vector<std::unique_ptr<Operation>> operations;    // in the order of forward
  std::vector<std::unique_ptr<StochasticBlock>> blocks;  // in the order of their nodes
  FlatLayout parameters;
  FlatLayout buffers;
};

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_PROGRAM_H_
