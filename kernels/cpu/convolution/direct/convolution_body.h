// 3x3 convolution of few input channels; see kernels/cpu/convolution/direct/kernels.h. Compiled
// once per instruction set.
//
// Output channels are in vectors, input values are broadcast. Each image is copied once into a
// border of zeros, so that inner loops need no edge cases. Forward keeps a strip of output pixels
// in registers, backward the gradients of as many taps as fit the registers.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_CONVOLUTION_BODY_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_CONVOLUTION_BODY_H_

#include <cstdint>

#include "kernels/cpu/convolution/direct/kernels.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/functors.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

inline constexpr int kPixelStrip = kRegisters == 32 ? 8 : 4;

// The border itself must be zero already.
inline void CopyInsideBorder(const DirectConvolutionShape& shape, const float* image,
                             float* bordered) {
  const int64_t row_stride = shape.width * shape.in_channels;
  const int64_t bordered_stride = (shape.width + 2) * shape.in_channels;
  for (int64_t h = 0; h < shape.height; ++h) {
    __builtin_memcpy(bordered + (h + 1) * bordered_stride + shape.in_channels,
                     image + h * row_stride, row_stride * sizeof(float));
  }
}

inline void ClearScratch(const DirectConvolutionShape& shape, float* scratch) {
  __builtin_memset(scratch, 0,
                   (shape.height + 2) * (shape.width + 2) * shape.in_channels * sizeof(float));
}

template <int kIn, int kVectors, int kPixels>
inline void ForwardStrip(const DirectConvolutionShape& shape, const float* x, const float* weights,
                         const float* bias, float* y) {
  const int64_t bordered_stride = (shape.width + 2) * kIn;
  const int64_t channels = shape.out_channels;
  Vector sums[kPixels][kVectors];
#pragma clang loop unroll(full)
  for (int v = 0; v < kVectors; ++v) {
    const Vector start = bias != nullptr ? Element<Vector>::Load(bias + v * kLanes) : Vector{};
#pragma clang loop unroll(full)
    for (int p = 0; p < kPixels; ++p) sums[p][v] = start;
  }
  for (int row = 0; row < 3; ++row) {
#pragma clang loop unroll(full)
    for (int tap = 0; tap < 3 * kIn; ++tap) {
      const float* w = weights + (row * 3 * kIn + tap) * channels;
      Vector weight[kVectors];
#pragma clang loop unroll(full)
      for (int v = 0; v < kVectors; ++v) weight[v] = Element<Vector>::Load(w + v * kLanes);
#pragma clang loop unroll(full)
      for (int p = 0; p < kPixels; ++p) {
        const Vector value = Element<Vector>::Splat(x[row * bordered_stride + p * kIn + tap]);
#pragma clang loop unroll(full)
        for (int v = 0; v < kVectors; ++v) sums[p][v] = sums[p][v] + value * weight[v];
      }
    }
  }
#pragma clang loop unroll(full)
  for (int p = 0; p < kPixels; ++p) {
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) {
      Vector value = sums[p][v];
      if (shape.relu) value = ReluFunctor<Vector>()(value);
      Element<Vector>::Store(y + p * channels + v * kLanes, value);
    }
  }
}

// Computes one block of output channels of one image.
template <int kIn, int kVectors>
inline void ForwardImage(const DirectConvolutionShape& shape, const float* bordered,
                         const float* weights, const float* bias, float* y) {
  for (int64_t h = 0; h < shape.height; ++h) {
    const float* x = bordered + h * (shape.width + 2) * kIn;
    float* row = y + h * shape.width * shape.out_channels;
    int64_t w = 0;
    for (; w + kPixelStrip <= shape.width; w += kPixelStrip) {
      ForwardStrip<kIn, kVectors, kPixelStrip>(shape, x + w * kIn, weights, bias,
                                               row + w * shape.out_channels);
    }
    for (; w + 4 <= shape.width; w += 4) {
      ForwardStrip<kIn, kVectors, 4>(shape, x + w * kIn, weights, bias,
                                     row + w * shape.out_channels);
    }
    for (; w < shape.width; ++w) {
      ForwardStrip<kIn, kVectors, 1>(shape, x + w * kIn, weights, bias,
                                     row + w * shape.out_channels);
    }
  }
}

inline const float* Advance(const float* bias, int64_t channels) {
  return bias != nullptr ? bias + channels : nullptr;
}

template <int kIn>
inline void ForwardImages(const DirectConvolutionShape& shape, const float* x, const float* weights,
                          const float* bias, float* y, float* scratch) {
  ClearScratch(shape, scratch);
  const int64_t pixels = shape.height * shape.width;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    CopyInsideBorder(shape, x + sample * pixels * kIn, scratch);
    float* image = y + sample * pixels * shape.out_channels;
    int64_t c = 0;
    for (; c + 2 * kLanes <= shape.out_channels; c += 2 * kLanes) {
      ForwardImage<kIn, 2>(shape, scratch, weights + c, Advance(bias, c), image + c);
    }
    for (; c < shape.out_channels; c += kLanes) {
      ForwardImage<kIn, 1>(shape, scratch, weights + c, Advance(bias, c), image + c);
    }
  }
}

inline void DirectConvolutionForward(const DirectConvolutionShape& shape, const float* x,
                                     const float* weights, const float* bias, float* y,
                                     float* scratch) {
  switch (shape.in_channels) {
    case 1:
      return ForwardImages<1>(shape, x, weights, bias, y, scratch);
    case 2:
      return ForwardImages<2>(shape, x, weights, bias, y, scratch);
    case 3:
      return ForwardImages<3>(shape, x, weights, bias, y, scratch);
    default:
      return ForwardImages<4>(shape, x, weights, bias, y, scratch);
  }
}

// Adds one image's contribution to the gradients of kRows rows of taps, for one block of output
// channels.
template <int kIn, int kVectors, int kRows>
inline void BackwardImage(const DirectConvolutionShape& shape, const float* bordered,
                          const float* dy, float* dweights) {
  constexpr int kTaps = 3 * kIn;
  const int64_t bordered_stride = (shape.width + 2) * kIn;
  const int64_t channels = shape.out_channels;
  Vector sums[kRows * kTaps][kVectors];
#pragma clang loop unroll(full)
  for (int t = 0; t < kRows * kTaps; ++t) {
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) sums[t][v] = Vector{};
  }
  for (int64_t h = 0; h < shape.height; ++h) {
    const float* x = bordered + h * bordered_stride;
    for (int64_t w = 0; w < shape.width; ++w, x += kIn, dy += channels) {
      Vector gradient[kVectors];
#pragma clang loop unroll(full)
      for (int v = 0; v < kVectors; ++v) gradient[v] = Element<Vector>::Load(dy + v * kLanes);
#pragma clang loop unroll(full)
      for (int t = 0; t < kRows * kTaps; ++t) {
        const Vector value = Element<Vector>::Splat(x[t / kTaps * bordered_stride + t % kTaps]);
#pragma clang loop unroll(full)
        for (int v = 0; v < kVectors; ++v) sums[t][v] = sums[t][v] + value * gradient[v];
      }
    }
  }
#pragma clang loop unroll(full)
  for (int t = 0; t < kRows * kTaps; ++t) {
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) {
      float* to = dweights + t * channels + v * kLanes;
      Element<Vector>::Store(to, Element<Vector>::Load(to) + sums[t][v]);
    }
  }
}

// Adds the image's pixels to dbias.
inline void AddPixels(int64_t pixels, int64_t channels, const float* image, float* dbias) {
  for (int64_t c = 0; c < channels; c += kLanes) {
    Vector sum{};
    for (int64_t p = 0; p < pixels; ++p) {
      sum = sum + Element<Vector>::Load(image + p * channels + c);
    }
    Element<Vector>::Store(dbias + c, Element<Vector>::Load(dbias + c) + sum);
  }
}

template <int kIn>
inline void BackwardImages(const DirectConvolutionShape& shape, const float* x, const float* dy,
                           float* dweights, float* dbias, float* scratch) {
  // Accumulators that fit the registers in addition to the gradients and a broadcast value.
  constexpr int kAccumulators = kRegisters == 32 ? 24 : 12;
  constexpr int kVectors = 3 * kIn * 2 <= kAccumulators ? 2 : 1;
  constexpr int kRows = 9 * kIn * kVectors <= kAccumulators ? 3 : 1;
  const int64_t pixels = shape.height * shape.width;
  const int64_t channels = shape.out_channels;
  ClearScratch(shape, scratch);
  __builtin_memset(dweights, 0, 9 * kIn * channels * sizeof(float));
  if (dbias != nullptr) __builtin_memset(dbias, 0, channels * sizeof(float));
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    CopyInsideBorder(shape, x + sample * pixels * kIn, scratch);
    const float* image = dy + sample * pixels * channels;
    for (int row = 0; row < 3; row += kRows) {
      const float* from = scratch + row * (shape.width + 2) * kIn;
      float* to = dweights + row * 3 * kIn * channels;
      int64_t c = 0;
      for (; c + kVectors * kLanes <= channels; c += kVectors * kLanes) {
        BackwardImage<kIn, kVectors, kRows>(shape, from, image + c, to + c);
      }
      for (; c < channels; c += kLanes) {
        BackwardImage<kIn, 1, kRows>(shape, from, image + c, to + c);
      }
    }
    if (dbias != nullptr) AddPixels(pixels, channels, image, dbias);
  }
}

inline void DirectConvolutionBackwardWeights(const DirectConvolutionShape& shape, const float* x,
                                             const float* dy, float* dweights, float* dbias,
                                             float* scratch) {
  switch (shape.in_channels) {
    case 1:
      return BackwardImages<1>(shape, x, dy, dweights, dbias, scratch);
    case 2:
      return BackwardImages<2>(shape, x, dy, dweights, dbias, scratch);
    case 3:
      return BackwardImages<3>(shape, x, dy, dweights, dbias, scratch);
    default:
      return BackwardImages<4>(shape, x, dy, dweights, dbias, scratch);
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_CONVOLUTION_BODY_H_
