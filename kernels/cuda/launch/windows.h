// Index arithmetic of pooling and convolution: the windows along an axis, and the pixel that an
// item of a launch processes.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_WINDOWS_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_WINDOWS_H_

#include <cstdint>

#include "kernels/cuda/launch/launch.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

struct Range {
  int64_t begin;
  int64_t end;
};

// n / divisor and n % divisor by a multiplication and a shift if n < 2^31, and by a division
// otherwise. With 2^s the smallest power of two not less than the divisor d, n / d is
// floor(n * ceil(2^(31+s) / d) / 2^(31+s)).
class Divider {
 public:
  explicit Divider(int64_t divisor) : divisor_(divisor) {
    if (divisor >= int64_t{1} << 31) return;
    while ((int64_t{1} << (shift_ - 31)) < divisor) ++shift_;
    const auto d = static_cast<uint64_t>(divisor);
    // 2^(31+s) / d, rounded up, is 2^31 for d = 1 and at most 2^32 - 1 for all others.
    factor_ = ((uint64_t{1} << shift_) + d - 1) / d;
  }
  MUSTER_HOST_DEVICE int64_t Divide(int64_t n) const {
    if (n >= int64_t{1} << 31 || factor_ == 0) return n / divisor_;
    return static_cast<int64_t>(static_cast<uint64_t>(n) * factor_ >> shift_);
  }
  // Replaces n by the quotient and returns the remainder.
  MUSTER_HOST_DEVICE int64_t DivMod(int64_t& n) const {
    const int64_t quotient = Divide(n);
    const int64_t remainder = n - quotient * divisor_;
    n = quotient;
    return remainder;
  }
  // The same for 0 <= n < 2^31 and a divisor below 2^31, without the code for other numbers.
  MUSTER_HOST_DEVICE int32_t DivModSmall(int32_t& n) const {
    const auto quotient = static_cast<int32_t>(static_cast<uint64_t>(n) * factor_ >> shift_);
    const int32_t remainder = n - quotient * static_cast<int32_t>(divisor_);
    n = quotient;
    return remainder;
  }

 private:
  int64_t divisor_;
  uint64_t factor_ = 0;  // 0 if the divisor is 2^31 or more
  int shift_ = 31;
};

// Windows along the height or the width of an image.
struct Axis {
  int64_t size;
  int64_t kernel;
  int64_t stride;
  int64_t padding;
  int64_t windows;
  Divider by_stride;

  Axis(int64_t size, int64_t kernel, int64_t stride, int64_t padding)
      : size(size),
        kernel(kernel),
        stride(stride),
        padding(padding),
        windows((size + 2 * padding - kernel) / stride + 1),
        by_stride(stride) {}

  // The window's first pixel; negative in the padding.
  MUSTER_HOST_DEVICE int64_t Begin(int64_t window) const { return window * stride - padding; }

  // The window's cells outside the padding, from 0 to `kernel`.
  MUSTER_HOST_DEVICE Range CellsOf(int64_t window) const {
    const int64_t begin = Begin(window);
    return {begin < 0 ? -begin : 0, Min(kernel, size - begin)};
  }

  // The windows that contain the pixel.
  MUSTER_HOST_DEVICE Range WindowsOver(int64_t pixel) const {
    // Range of the first pixels of such windows, counted from the start of the padding.
    const int64_t last = pixel + padding;
    const int64_t first = last - kernel + 1;
    return {first > 0 ? by_stride.Divide(first + stride - 1) : 0,
            Min(by_stride.Divide(last) + 1, windows)};
  }
};

// A vector of channels at one pixel of one sample.
struct PixelPosition {
  int64_t sample;
  int64_t h;
  int64_t w;
  int64_t channel;  // the vector's first
};

// Positions of the items of a launch over images [samples, height, width, channels] with one vector
// of channels per item.
class PixelIndexer {
 public:
  PixelIndexer(int64_t height, int64_t width, int64_t vectors, int vector_width)
      : height_(height), width_(width), vectors_(vectors), vector_width_(vector_width) {}

  MUSTER_HOST_DEVICE PixelPosition At(int64_t item) const {
    PixelPosition position;
    position.channel = vectors_.DivMod(item) * vector_width_;
    position.w = width_.DivMod(item);
    position.h = height_.DivMod(item);
    position.sample = item;
    return position;
  }

 private:
  Divider height_;
  Divider width_;
  Divider vectors_;
  int vector_width_;
};

// The largest of a window's cells and its index: the first among equals; the last NaN, if there are
// any.
struct Largest {
  float value;
  int index;
  MUSTER_HOST_DEVICE void Consider(float candidate, int candidate_index) {
    if (!(candidate > value) && candidate == candidate) return;
    value = candidate;
    index = candidate_index;
  }
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_LAUNCH_WINDOWS_H_
