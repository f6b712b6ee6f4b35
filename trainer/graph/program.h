// A lowered graph: the operations in order, the values between them, and the layout of the
// parameters.
#ifndef MUSTER_TRAINER_GRAPH_PROGRAM_H_
#define MUSTER_TRAINER_GRAPH_PROGRAM_H_

#include <memory>
#include <string>
#include <vector>

#include "trainer/graph/operation.h"
#include "trainer/graph/parameters.h"

namespace muster::nn {

// A value that comes from an earlier stage or goes to a later one.
struct Boundary {
  std::string name;
  Tensor* tensor = nullptr;
};

struct Program {
  std::vector<std::unique_ptr<Tensor>> tensors;          // first those that no operation produces
  Tensor* input = nullptr;                               // the batch; null after the first stage
  Tensor* logits = nullptr;                              // null before the last stage
  std::vector<Boundary> inputs;                          // in the order of Graph::inputs
  std::vector<Boundary> outputs;                         // in the order of Graph::outputs
  std::vector<std::unique_ptr<Operation>> operations;    // in the order of forward
  std::vector<std::unique_ptr<StochasticBlock>> blocks;  // in the order of their nodes
  FlatLayout parameters;
  FlatLayout buffers;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PROGRAM_H_
