// Layer-wise adaptive rate scaling (You, Gitman & Ginsburg 2017, algorithm 1) over flat arrays,
// with two calls per step for any number of tensors.
//
// Pointers are accessible to the device's kernels. Arrays are float32, of any alignment, and do not
// overlap. Thread-safe.
#ifndef MUSTER_KERNELS_LARS_H_
#define MUSTER_KERNELS_LARS_H_

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/update.h"

namespace muster::kernels {

// Maximum number of a tensor's elements per GPU block.
inline constexpr int64_t kLarsPiece = 1 << 14;

// Number of pieces of a tensor with `count` elements.
constexpr int64_t LarsPieces(int64_t count) { return (count + kLarsPiece - 1) / kLarsPiece; }

// A tensor's range in the flat arrays, and whether its rate is adapted.
struct LarsTensor {
  int64_t offset = 0;
  int64_t count = 0;
  int64_t first_piece = 0;  // total pieces of the preceding tensors
  bool adapted = true;      // false: the global rate and no weight decay
};

struct LarsOptions {
  int64_t tensors = 0;
  int64_t pieces = 0;  // number of pieces of all tensors
  double trust_coefficient = 0;
  double weight_decay = 0;
  float momentum = 0;
  DataType round_to = DataType::kFloat32;  // as in kernels/optimizer.h
};

// tensors [options.tensors], with parameters and gradients in the flat arrays -> rates, the scalars
// of SgdStep for each tensor, with the rate applied to the gradient before the velocity:
//   ratio = trust_coefficient * |w| / (|g| + weight_decay * |w|)
//   decay_scale = learning_rate * ratio
//   gradient_scale = decay_scale * scalars->gradient_scale
// and learning_rate = 1. The ratio is 1 for a tensor of zeros, which would otherwise never learn,
// and for tensors that are not adapted. Norms are accumulated in double, in an order that depends
// only on the counts.
using LarsRates = void(const LarsOptions& options, const LarsTensor* tensors,
                       const UpdateScalars* scalars, const float* parameters,
                       const float* gradients, UpdateScalars* rates);

// SgdStep of every tensor with its own rate. velocities may be null if options.momentum is 0. Does
// nothing for a rate with `skip` set.
using LarsStep = void(const LarsOptions& options, const LarsTensor* tensors,
                      const UpdateScalars* rates, float* parameters, float* velocities,
                      const float* gradients);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_LARS_H_
