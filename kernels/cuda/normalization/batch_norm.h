// Shared by forward and backward of batch norm: per-channel values, and the windows of the max
// pooling that may follow.
#ifndef MUSTER_KERNELS_CUDA_NORMALIZATION_BATCH_NORM_H_
#define MUSTER_KERNELS_CUDA_NORMALIZATION_BATCH_NORM_H_

#include "kernels/batch_norm_shortcut.h"
#include "kernels/cuda/launch/channel_tiling.h"
#include "kernels/cuda/launch/windows.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// array[channel] to array[channel + kWidth - 1].
template <int kWidth>
MUSTER_HOST_DEVICE Floats<kWidth> Channels(const float* array, int64_t channel) {
  Floats<kWidth> values;
  for (int i = 0; i < kWidth; ++i) values[i] = array[channel + i];
  return values;
}

// Per channel: dx = scale * dy + slope * x + offset.
template <int kWidth>
struct DataCoefficients {
  BatchNormBackwardFunctor<float> functors[kWidth];

  MUSTER_HOST_DEVICE DataCoefficients(const BatchNormGradient& gradient, const float* dgamma,
                                      const float* dbeta, int64_t channel) {
    const double pixels =
        gradient.shared_pixels != nullptr ? *gradient.shared_pixels : gradient.pixels;
    const double share = 1 / pixels;
    for (int i = 0; i < kWidth; ++i) {
      const int64_t c = channel + i;
      const double scale = gradient.scale[c];
      const double slope = -scale * dgamma[c] * share * gradient.inverse_deviation[c];
      const double offset = -scale * dbeta[c] * share - slope * gradient.mean[c];
      functors[i] = {gradient.scale[c], static_cast<float>(slope), static_cast<float>(offset)};
    }
  }
  MUSTER_HOST_DEVICE Floats<kWidth> operator()(const Floats<kWidth>& x,
                                               const Floats<kWidth>& dy) const {
    Floats<kWidth> dx;
    for (int i = 0; i < kWidth; ++i) dx[i] = functors[i](x[i], dy[i]);
    return dx;
  }
};

// Elements whose bits share a byte of a mask: those of a vector of 16 bytes, which a thread
// processes, or one where channels are no multiple of them. Arrays are aligned, so that
// DispatchWidth chooses the same width.
inline int64_t ElementsPerMaskByte(const BatchNormShape& shape) {
  const int64_t width = 16 / static_cast<int64_t>(SizeOf(shape.type));
  return shape.channels % width == 0 ? width : 1;
}

inline double MaskBytes(const BatchNormShape& shape) {
  return ArrayBytes(DataType::kUint8, shape.pixels() * shape.channels / ElementsPerMaskByte(shape));
}

// The windows of 2x2 max pooling with stride 2; an odd last row or column is in no window. The four
// pixels of a window are its corners, numbered row by row from 0.
struct NonOverlapping2x2 {
  int64_t height;
  int64_t width;
  int64_t out_height;
  int64_t out_width;
  Divider by_height;
  Divider by_width;
  Divider by_out_height;
  Divider by_out_width;

  explicit NonOverlapping2x2(const BatchNormShape& shape)
      : height(shape.height),
        width(shape.width),
        out_height(shape.out_height()),
        out_width(shape.out_width()),
        by_height(height),
        by_width(width),
        by_out_height(Max(out_height, 1)),
        by_out_width(Max(out_width, 1)) {}

  // The pixel of x at corner 0 of the window.
  MUSTER_HOST_DEVICE int64_t FirstPixel(int64_t window) const {
    const int64_t w = by_out_width.DivMod(window);
    const int64_t h = by_out_height.DivMod(window);
    return (window * height + 2 * h) * width + 2 * w;
  }
  // Distance of a corner from the window's first pixel.
  MUSTER_HOST_DEVICE int64_t CornerOffset(int corner) const {
    return corner / 2 * width + corner % 2;
  }
  // The window that contains the pixel, and the pixel's corner in it; -1 if there is none.
  MUSTER_HOST_DEVICE int64_t WindowOf(int64_t pixel, int& corner) const {
    const int64_t w = by_width.DivMod(pixel);
    const int64_t h = by_height.DivMod(pixel);
    corner = static_cast<int>(h % 2 * 2 + w % 2);
    if (h / 2 >= out_height || w / 2 >= out_width) return -1;
    return (pixel * out_height + h / 2) * out_width + w / 2;
  }
};

// The batch norm of as many pixels as the pooling has windows.
inline BatchNormShape WithoutPool(const BatchNormShape& shape) {
  BatchNormShape windows = shape;
  windows.height = shape.out_height();
  windows.width = shape.out_width();
  windows.pool = false;
  return windows;
}

// The arrays in which Apply keeps the choices of pooling other than 2x2. They contain, for each
// element of y: the value of x at the maximum, from which BackwardParameters computes both sums
// without x; its index in the window, as in MaxPoolForward; and a bit as in
// BatchNormGradient::mask. All null if the bytes are.
struct PoolChoice {
  void* x = nullptr;
  uint8_t* index = nullptr;
  uint8_t* mask = nullptr;

  PoolChoice(const BatchNormShape& shape, const uint8_t* bytes) {
    if (bytes == nullptr) return;
    x = const_cast<uint8_t*>(bytes);
    index = const_cast<uint8_t*>(bytes) + XBytes(shape);
    mask = index + RoundUp(Elements(shape));
  }
  static int64_t Bytes(const BatchNormShape& shape) {
    return XBytes(shape) + RoundUp(Elements(shape)) +
           static_cast<int64_t>(MaskBytes(WithoutPool(shape)));
  }

 private:
  static int64_t Elements(const BatchNormShape& shape) {
    return shape.out_pixels() * shape.channels;
  }
  static int64_t XBytes(const BatchNormShape& shape) {
    return RoundUp(Elements(shape) * static_cast<int64_t>(SizeOf(shape.type)));
  }
  static int64_t RoundUp(int64_t bytes) { return CeilDiv(bytes, 64) * 64; }
};

// Apply and BackwardData with pooling other than 2x2; batch_norm_pool.cu.
void ApplyPool(const BatchNormShape& shape, const void* x, const float* scale, const float* shift,
               void* y, uint8_t* choice);
void BackwardDataOfPool(const BatchNormShape& shape, const BatchNormGradient& gradient,
                        const float* dgamma, const float* dbeta, void* dx);

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_NORMALIZATION_BATCH_NORM_H_
