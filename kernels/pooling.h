// 2x2 max pooling with stride 2 over NHWC float32 activations, alone or after a ReLU.
#ifndef MUSTER_KERNELS_POOLING_H_
#define MUSTER_KERNELS_POOLING_H_

#include <cstdint>

namespace muster::kernels {

struct PoolShape {
  int64_t rows = 0;
  int64_t height = 2;
  int64_t width = 2;
  int64_t channels = 1;
  bool relu = false;  // of x before, or, which is the same, of the largest after
};

// x [rows, height, width, channels] -> y [rows, height / 2, width / 2, channels]; an odd last line
// or column is dropped. choice uint8 like y, may be null: which of the four pixels was the largest
// (0 to 3, by lines), the first among equals; with relu 4 where the largest is not above zero.
using MaxPoolForward = void(const PoolShape& shape, const float* x, float* y, uint8_t* choice);

// dy like y, choice -> dx like x, zero where nothing was chosen.
using MaxPoolBackward = void(const PoolShape& shape, const float* dy, const uint8_t* choice,
                             float* dx);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_POOLING_H_
