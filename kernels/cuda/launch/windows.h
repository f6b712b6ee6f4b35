// Where the windows of pooling and convolutions lie, and how items are numbered over images.
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_WINDOWS_H_
#define MUSTER_KERNELS_CUDA_LAUNCH_WINDOWS_H_

#include <cstdint>

#include "kernels/cuda/launch/launch.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

struct Range {
  int64_t begin;
  int64_t end;
};

// n / divisor and n % divisor without a division, where n is below 2^31: with 2^s the power of two
// at or above the divisor d, n / d is the whole part of n * ceil(2^(31+s) / d) / 2^(31+s).
class Divider {
 public:
  explicit Divider(int64_t divisor) : divisor_(divisor) {
    if (divisor >= int64_t{1} << 31) return;
    while ((int64_t{1} << (shift_ - 31)) < divisor) ++shift_;
    const auto d = static_cast<uint64_t>(divisor);
    // 2^(31+s) / d, rounded up, is at most 2^32 - 1 but for d = 1, where it is 2^31.
    factor_ = ((uint64_t{1} << shift_) + d - 1) / d;
  }
  MUSTER_HOST_DEVICE int64_t Quotient(int64_t n) const {
    if (n >= int64_t{1} << 31 || factor_ == 0) return n / divisor_;
    return static_cast<int64_t>(static_cast<uint64_t>(n) * factor_ >> shift_);
  }
  // n becomes the quotient.
  MUSTER_HOST_DEVICE int64_t TakeRest(int64_t& n) const {
    const int64_t quotient = Quotient(n);
    const int64_t rest = n - quotient * divisor_;
    n = quotient;
    return rest;
  }

 private:
  int64_t divisor_;
  uint64_t factor_ = 0;  // 0: the divisor is too large
  int shift_ = 31;
};

// Along the height or the width.
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

  // Where the window begins, perhaps in the padding.
  MUSTER_HOST_DEVICE int64_t Begin(int64_t window) const { return window * stride - padding; }

  // The cells of the window that do not lie in the padding.
  MUSTER_HOST_DEVICE Range CellsOf(int64_t window) const {
    const int64_t begin = Begin(window);
    return {begin < 0 ? -begin : 0, Smaller(kernel, size - begin)};
  }

  // The windows that cover the pixel.
  MUSTER_HOST_DEVICE Range WindowsOver(int64_t pixel) const {
    const int64_t last = pixel + padding;  // of the places where such a window may begin
    const int64_t first = last - kernel + 1;
    return {first > 0 ? by_stride.Quotient(first + stride - 1) : 0,
            Smaller(by_stride.Quotient(last) + 1, windows)};
  }
};

// One vector of channels of one pixel.
struct Place {
  int64_t row;
  int64_t h;
  int64_t w;
  int64_t channel;
};

// Items of images [rows, height, width, channels], kWidth channels each.
class Images {
 public:
  Images(int64_t height, int64_t width, int64_t vectors, int channels_at_once)
      : height_(height), width_(width), vectors_(vectors), channels_at_once_(channels_at_once) {}

  MUSTER_HOST_DEVICE Place At(int64_t item) const {
    Place place;
    place.channel = vectors_.TakeRest(item) * channels_at_once_;
    place.w = width_.TakeRest(item);
    place.h = height_.TakeRest(item);
    place.row = item;
    return place;
  }

 private:
  Divider height_;
  Divider width_;
  Divider vectors_;
  int channels_at_once_;
};

// The largest of a window's cells and its index: the first among equals, but the last NaN of all.
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
