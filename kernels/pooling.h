// Max and average pooling over NHWC activations.
#ifndef MUSTER_KERNELS_POOLING_H_
#define MUSTER_KERNELS_POOLING_H_

#include <cstdint>

#include "kernels/data_type.h"

namespace muster::kernels {

// Maximum kernel of max pooling: the index within the window must fit into a byte.
inline constexpr int64_t kMaxPoolKernel = 15;

// Value instead of an index: no gradient passes.
inline constexpr uint8_t kNoChoice = 255;

// Max pooling, alone or after a ReLU. height and width are at least kernel - 2 * padding.
struct PoolShape {
  int64_t samples = 0;
  int64_t height = 2;
  int64_t width = 2;
  int64_t channels = 1;
  bool relu = false;                   // applied to x, or equivalently to the maximum
  int64_t kernel = 2;                  // square, 1 to kMaxPoolKernel
  int64_t stride = 2;                  // at least 1
  int64_t padding = 0;                 // on each side, at most kernel / 2; never the maximum
  DataType type = DataType::kFloat32;  // type of x, y, dy and dx

  int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
};

// x [samples, height, width, channels] -> y [samples, out_height, out_width, channels]; rows and
// columns that fill no window are dropped. choice uint8 like y, may be null: the index within the
// window (row-major, from 0, including padding) of the maximum, the first among equals; with relu
// kNoChoice if the maximum is not above zero. As in PyTorch, NaN is the maximum, the last of
// several.
using MaxPoolForward = void(const PoolShape& shape, const void* x, void* y, uint8_t* choice);

// dy like y, choice -> dx like x: for each pixel the sum over the windows that chose it.
using MaxPoolBackward = void(const PoolShape& shape, const void* dy, const uint8_t* choice,
                             void* dx);

// Average pooling without padding; global if the kernel is as large as the image. height and width
// are at least the kernel's.
struct AveragePoolShape {
  int64_t samples = 0;
  int64_t height = 1;
  int64_t width = 1;
  int64_t channels = 1;
  int64_t kernel_height = 1;
  int64_t kernel_width = 1;
  int64_t stride = 1;
  DataType type = DataType::kFloat32;  // type of x, y, dy and dx

  int64_t out_height() const { return (height - kernel_height) / stride + 1; }
  int64_t out_width() const { return (width - kernel_width) / stride + 1; }
};

// x [samples, height, width, channels] -> y [samples, out_height, out_width, channels].
using AveragePoolForward = void(const AveragePoolShape& shape, const void* x, void* y);

// dy like y -> dx like x, zero outside all windows.
using AveragePoolBackward = void(const AveragePoolShape& shape, const void* dy, void* dx);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_POOLING_H_
