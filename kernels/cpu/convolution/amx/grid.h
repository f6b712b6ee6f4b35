// A convolution as a sum of matrix products, one per kernel tap, over a grid of positions.
//
// Images are laid out as grids of equal size with enough zeros between their rows that a tap is the
// same shift for every position: its pixels are the grid's positions at a constant offset, and form
// rows of a matrix at equal distances. Positions without a target pixel are computed but not used.
// With a stride, the source (forward) or the target (backward data) is divided into planes in which
// taps are shifts again. If images are small and numerous, every row, column or pixel becomes its
// own plane and target, so that no zeros are needed.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_AMX_GRID_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_AMX_GRID_H_

#include <cstdint>

namespace muster::kernels::cpu {

// A tap as used by a target.
struct GridTap {
  int64_t place;  // index of the tap in GridPlan::taps
  int64_t target;
  int64_t plane;  // plane of the source
  int64_t shift;  // in positions, not negative
};

// Target pixels that use the same taps, except taps that fall on zeros.
struct GridTarget {
  const GridTap* taps;
  int64_t tap_count;      // 0: the sums are zero
  const int32_t* pixels;  // by position of an image: its pixel, or -1
};

// The part of the computation that is independent of the data.
struct GridPlan {
  int64_t positions;  // per image
  int64_t largest_shift;
  int64_t planes;
  const int32_t* sources;  // [planes][positions]: the source pixel, or -1 for zeros
  const GridTarget* targets;
  int64_t target_count;
  // Indices of weights (kernel row * kernel + kernel column), each used by a target, without
  // duplicates.
  const int64_t* taps;
  int64_t tap_count;
  // Uses of all targets, by tap: those of taps[i] are [first_uses[i], first_uses[i + 1]).
  const GridTap* uses;
  const int64_t* first_uses;  // [tap_count + 1]
  int64_t target_pixels;      // per image
};

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_AMX_GRID_H_
