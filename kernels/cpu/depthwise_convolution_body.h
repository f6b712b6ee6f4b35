// The weights' gradient of a depthwise convolution; see kernels/depthwise_convolution.h. Compiled
// once per instruction set.
//
// One tap after the other walks over the pixels that it reaches: the images are small enough to
// stay in the cache.
#ifndef MUSTER_KERNELS_CPU_DEPTHWISE_CONVOLUTION_BODY_H_
#define MUSTER_KERNELS_CPU_DEPTHWISE_CONVOLUTION_BODY_H_

#include <cstdint>

#include "kernels/cpu/vector.h"
#include "kernels/cpu/windows.h"
#include "kernels/depthwise_convolution.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

struct DepthwiseBackwardWeightsBody {
  const DepthwiseConvolutionShape& shape;
  const Axis& vertical;
  const Axis& horizontal;
  const float* x;
  const float* dy;
  float* dweights;
  float* dbias;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    for (int64_t r = 0; r < shape.kernel; ++r) {
      for (int64_t s = 0; s < shape.kernel; ++s) {
        T total[kCount] = {};
        for (int64_t row = 0; row < shape.rows; ++row) AddImage(row, r, s, channel, total);
        float* const to = dweights + (r * shape.kernel + s) * shape.channels + channel;
        for (int i = 0; i < kCount; ++i) Element<T>::Store(to + i * kWidth, total[i]);
      }
    }
    if (dbias == nullptr) return;
    T total[kCount] = {};
    const int64_t pixels = vertical.windows * horizontal.windows;
    for (int64_t row = 0; row < shape.rows; ++row) {
      T sum[kCount] = {};
      const float* p = dy + row * pixels * shape.channels + channel;
      for (int64_t pixel = 0; pixel < pixels; ++pixel, p += shape.channels) {
        for (int i = 0; i < kCount; ++i) sum[i] = sum[i] + Element<T>::Load(p + i * kWidth);
      }
      for (int i = 0; i < kCount; ++i) total[i] = total[i] + sum[i];
    }
    for (int i = 0; i < kCount; ++i) Element<T>::Store(dbias + channel + i * kWidth, total[i]);
  }

  // One image's share of tap (r, s). Images are summed one by one: of many, fewer bits are lost.
  template <typename T, int kCount>
  MUSTER_ALWAYS_INLINE void AddImage(int64_t row, int64_t r, int64_t s, int64_t channel,
                                     T (&total)[kCount]) const {
    constexpr int kWidth = Element<T>::kWidth;
    const int64_t channels = shape.channels;
    const Range lines = vertical.WindowsWithCell(r);
    const Range columns = horizontal.WindowsWithCell(s);
    T sum[kCount] = {};
    for (int64_t h = lines.begin; h < lines.end; ++h) {
      const int64_t in_line = row * vertical.size + vertical.Begin(h) + r;
      const int64_t in = in_line * horizontal.size + horizontal.Begin(columns.begin) + s;
      const int64_t out = (row * vertical.windows + h) * horizontal.windows + columns.begin;
      const float* p = x + in * channels + channel;
      const float* q = dy + out * channels + channel;
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        for (int i = 0; i < kCount; ++i) {
          sum[i] = sum[i] + Element<T>::Load(p + i * kWidth) * Element<T>::Load(q + i * kWidth);
        }
        p += shape.stride * channels;
        q += channels;
      }
    }
    for (int i = 0; i < kCount; ++i) total[i] = total[i] + sum[i];
  }
};

inline void DepthwiseConvolutionBackwardWeights(const DepthwiseConvolutionShape& shape,
                                                const float* x, const float* dy, float* dweights,
                                                float* dbias) {
  const Axis vertical(shape.height, shape.kernel, shape.stride, shape.padding);
  const Axis horizontal(shape.width, shape.kernel, shape.stride, shape.padding);
  ForEachChannelBlock(shape.channels, DepthwiseBackwardWeightsBody{shape, vertical, horizontal, x,
                                                                   dy, dweights, dbias});
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_DEPTHWISE_CONVOLUTION_BODY_H_
