// What forward and backward of batch norm share: a channel's values, and the squares of a 2x2 pool
// that the activation passes through.
#ifndef MUSTER_KERNELS_CUDA_NORMALIZATION_BATCH_NORM_H_
#define MUSTER_KERNELS_CUDA_NORMALIZATION_BATCH_NORM_H_

#include "kernels/cuda/launch/channel_tiling.h"
#include "kernels/cuda/launch/windows.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

template <int kWidth>
MUSTER_HOST_DEVICE Floats<kWidth> Channels(const float* array, int64_t channel) {
  Floats<kWidth> values;
  for (int i = 0; i < kWidth; ++i) values[i] = array[channel + i];
  return values;
}

// The 2x2 squares of images whose odd last line and column are dropped.
struct Squares {
  int64_t height;
  int64_t width;
  int64_t out_height;
  int64_t out_width;
  Divider by_height;
  Divider by_width;
  Divider by_out_height;
  Divider by_out_width;

  explicit Squares(const BatchNormShape& shape)
      : height(shape.height),
        width(shape.width),
        out_height(shape.out_height()),
        out_width(shape.out_width()),
        by_height(height),
        by_width(width),
        by_out_height(Larger(out_height, 1)),
        by_out_width(Larger(out_width, 1)) {}

  // The pixel of x under corner 0 of a square; the others are 1, width and width + 1 behind it.
  MUSTER_HOST_DEVICE int64_t Under(int64_t square) const {
    const int64_t w = by_out_width.TakeRest(square);
    const int64_t h = by_out_height.TakeRest(square);
    return (square * height + 2 * h) * width + 2 * w;
  }
  MUSTER_HOST_DEVICE int64_t Corner(int corner) const { return corner / 2 * width + corner % 2; }
  // The square over a pixel, of which the pixel is `corner`; -1 where there is none.
  MUSTER_HOST_DEVICE int64_t Over(int64_t pixel, int& corner) const {
    const int64_t w = by_width.TakeRest(pixel);
    const int64_t h = by_height.TakeRest(pixel);
    corner = static_cast<int>(h % 2 * 2 + w % 2);
    if (h / 2 >= out_height || w / 2 >= out_width) return -1;
    return (pixel * out_height + h / 2) * out_width + w / 2;
  }
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_NORMALIZATION_BATCH_NORM_H_
