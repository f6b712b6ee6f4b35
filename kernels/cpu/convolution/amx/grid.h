// A convolution as sums of matrix products, one for each tap, over a grid of positions.
//
// Images become grids of equal size with zeros between their lines, enough of them that a tap is
// the same shift for every position: the pixels that a tap sees are the grid's positions some way
// further on, and rows of a matrix at equal distances. A position whose target is no pixel is
// multiplied in vain. With a stride the source is divided into planes (forward), or the target
// into as many (backward data), in which the taps are shifts again. And where images are small and
// many, every line, column or pixel is a plane of its own, and a target: then no zeros are needed.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_AMX_GRID_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_AMX_GRID_H_

#include <cstdint>

namespace muster::kernels::cpu {

// A tap as a target sees it.
struct GridTap {
  int64_t place;  // of the tap in the plan's taps
  int64_t target;
  int64_t plane;  // of the source
  int64_t shift;  // positions, not negative
};

// Pixels of the target that see the same taps, but for those that fall on zeros.
struct GridTarget {
  const GridTap* taps;
  int64_t tap_count;      // 0: the sums are zero
  const int32_t* pixels;  // of each position of an image: its pixel, or -1
};

// What does not depend on the data.
struct GridPlan {
  int64_t positions;  // of an image
  int64_t largest_shift;
  int64_t planes;
  const int32_t* sources;  // [planes][positions]: the pixel of the source, or -1 for zeros
  const GridTarget* targets;
  int64_t target_count;
  // Of the weights (kernel row * kernel + kernel column), each that a target sees once.
  const int64_t* taps;
  int64_t tap_count;
  // All targets' by place: those of the tap at place i are [first_uses[i], first_uses[i + 1]).
  const GridTap* uses;
  const int64_t* first_uses;  // [tap_count + 1]
  int64_t target_pixels;      // of an image
};

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_AMX_GRID_H_
