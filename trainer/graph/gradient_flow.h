// Plans how a program's gradients are accumulated in backward: the order in which the consumers of
// a value contribute to its gradient, and which gradients can share memory.
#ifndef MUSTER_TRAINER_GRAPH_GRADIENT_FLOW_H_
#define MUSTER_TRAINER_GRAPH_GRADIENT_FLOW_H_

#include <cstddef>
#include <vector>

#include "trainer/graph/operation.h"
#include "trainer/graph/program.h"

namespace muster::nn {

// An operation's contribution to the gradient of one of its inputs.
struct Contribution {
  size_t input = 0;                     // index of the operation's input
  size_t tensor = 0;                    // index of the program's tensor
  const Operation* producer = nullptr;  // null if an earlier stage computes the tensor
  // Whether this is the first contribution in the order of backward: the first is written, the
  // others are added to it. Contributions of later stages precede all of them.
  bool first = false;
  // The gradient already lies where the output's gradient does, so nothing is computed.
  bool in_place = false;
  // The contribution stays in `addend` until the producer adds it to the gradient; see
  // Operation::TakesGradientAddend.
  bool deferred = false;
  int64_t stride = 1;  // see Operation::GradientStride; deferred if not 1
  // Temporary for a contribution that is added; set by PlaceMemory.
  void* addend = nullptr;
};

struct GradientFlow {
  std::vector<std::vector<Contribution>> contributions;  // by operation
  // By tensor: the tensor, first in the order of backward, whose gradient's memory it shares.
  std::vector<size_t> place;
};

// An operation that passes its output's gradient on shares its memory, unless one of the gradients
// there changes while another is still to be read. In a residual block, the gradients of shortcut
// and branch share the memory of the sum's gradient. Gradients of values that cross between stages
// share memory with none: other code reads and writes them outside the passes.
GradientFlow PlanGradients(const Program& program);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_GRADIENT_FLOW_H_
