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

// By node. INVALID_ARGUMENT names the first node that does not fit: an input that comes later or is
// used twice, a shape that is too small, a number out of range.
absl::StatusOr<std::vector<ValueShape>> InferShapes(const Graph& graph);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_SHAPES_H_
