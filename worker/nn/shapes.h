// Shapes of every value in a graph.
#ifndef MUSTER_WORKER_NN_SHAPES_H_
#define MUSTER_WORKER_NN_SHAPES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/nn/graph.h"

namespace muster::nn {

// Of one row.
struct ValueShape {
  // Flat values have height = width = 1.
  ImageShape image;
  bool flat = false;
  // What Flatten saw, for the order of a Linear's columns in files; a flat input's own shape
  // otherwise.
  ImageShape flattened_from;

  int64_t elements() const { return image.height * image.width * image.channels; }
};

// By node. INVALID_ARGUMENT names the first node that does not fit: an input that comes later, an
// output that nobody takes, a shape that is too small, summands that differ, a number out of range,
// a name that another node has.
absl::StatusOr<std::vector<ValueShape>> InferShapes(const Graph& graph);

// By node: those that take its output, in order; a node that takes it twice stands there twice.
// Inputs must be valid, as after InferShapes.
std::vector<std::vector<NodeId>> Consumers(const Graph& graph);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_SHAPES_H_
