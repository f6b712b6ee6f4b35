// How gradients come together in a program's backward direction: in what order the consumers of a
// value contribute to its gradient, and which gradients can lie in one place.
#ifndef MUSTER_TRAINER_GRAPH_GRADIENT_FLOW_H_
#define MUSTER_TRAINER_GRAPH_GRADIENT_FLOW_H_

#include <cstddef>
#include <vector>

#include "trainer/graph/operation.h"
#include "trainer/graph/program.h"

namespace muster::nn {

// What an operation gives to the gradient of one of its inputs.
struct Contribution {
  size_t input = 0;                     // of the operation
  size_t tensor = 0;                    // of the program
  const Operation* producer = nullptr;  // of the tensor; null where it comes from an earlier part
  // In backward's order the first contribution is written, the others are added to it. What later
  // parts contribute is there before all of them.
  bool first = false;
  // The gradient already lies where the output's gradient does: nothing needs to be done.
  bool in_place = false;
  // Where a contribution that is to be added is computed; set by PlaceMemory.
  void* addend = nullptr;
};

struct GradientFlow {
  std::vector<std::vector<Contribution>> contributions;  // by operation
  // By tensor: the first one, in backward's order, of those whose gradients share its place.
  std::vector<size_t> place;
};

// An operation that passes its output's gradient on shares its place, unless one of the gradients
// there changes while another one is still to be read. The shortcut's gradient of a residual block
// lies in the sum's gradient, and so does the branch's. The gradients of what crosses between parts
// lie alone: others write and read them, at times of their own.
GradientFlow PlanGradients(const Program& program);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_GRADIENT_FLOW_H_
