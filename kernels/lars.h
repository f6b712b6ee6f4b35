// Layer-wise adaptive rate scaling (You, Gitman & Ginsburg 2017, algorithm 1) over flat arrays: two
// calls a step, however many tensors there are.
//
// Pointers are to where a device's kernels reach. Arrays are float32, of any alignment, none
// overlapping another. Any thread.
#ifndef MUSTER_KERNELS_LARS_H_
#define MUSTER_KERNELS_LARS_H_

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/update.h"

namespace muster::kernels {

// What one block of a GPU takes of a tensor at most.
inline constexpr int64_t kLarsPiece = 1 << 14;

// The pieces of so many elements.
constexpr int64_t LarsPieces(int64_t count) { return (count + kLarsPiece - 1) / kLarsPiece; }

// Where one lies in the flat arrays, and whether its rate is its own.
struct LarsTensor {
  int64_t offset = 0;
  int64_t count = 0;
  int64_t first_piece = 0;  // the pieces of all tensors before it
  bool adapted = true;      // otherwise there is neither a rate of its own nor weight decay
};

struct LarsOptions {
  int64_t tensors = 0;
  int64_t pieces = 0;  // of all tensors
  double trust_coefficient = 0;
  double weight_decay = 0;
  float momentum = 0;
  DataType round_to = DataType::kFloat32;  // as in kernels/optimizer.h
};

// tensors [options.tensors], their parameters and gradients in the flat arrays -> rates, one for
// each tensor, as SgdStep takes them, of which the velocity takes the rate with the gradient:
//   ratio = trust_coefficient * |w| / (|g| + weight_decay * |w|)
//   decay_scale = learning_rate * ratio
//   gradient_scale = decay_scale * the gradients' own
// and learning_rate = 1. A tensor of zeros, which would never learn, has a ratio of 1, and so has
// one that is not adapted. Norms are added up in double, in an order that counts alone decide.
using LarsRates = void(const LarsOptions& options, const LarsTensor* tensors,
                       const UpdateScalars* scalars, const float* parameters,
                       const float* gradients, UpdateScalars* rates);

// SgdStep of every tensor at its own rate. velocities may be null when options.momentum is 0.
// Where a rate's skip says so nothing is done at all.
using LarsStep = void(const LarsOptions& options, const LarsTensor* tensors,
                      const UpdateScalars* rates, float* parameters, float* velocities,
                      const float* gradients);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_LARS_H_
