// Depthwise convolution; see kernels/depthwise_convolution.h. Compiled once per instruction set.
//
// This file has the loops for any shape, one image at a time; three_body.h and dot_body.h have the
// loops for the shapes that networks use most.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_CONVOLUTION_BODY_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_CONVOLUTION_BODY_H_

#include <cstdint>

#include "kernels/cpu/activation/activation_body.h"
#include "kernels/cpu/convolution/depthwise/dot_body.h"
#include "kernels/cpu/convolution/depthwise/operand.h"
#include "kernels/cpu/convolution/depthwise/three_body.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/cpu/vector/windows.h"
#include "kernels/depthwise_convolution.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

struct DepthwiseAxes {
  explicit DepthwiseAxes(const DepthwiseConvolutionShape& shape)
      : vertical(shape.height, shape.kernel, shape.stride, shape.padding),
        horizontal(shape.width, shape.kernel, shape.stride, shape.padding),
        padded_channels((shape.channels + 15) / 16 * 16) {}
  int64_t out_pixels() const { return vertical.windows * horizontal.windows; }

  const Axis vertical;
  const Axis horizontal;
  const int64_t padded_channels;
};

template <typename T>
MUSTER_ALWAYS_INLINE T ActivateAs(Activation activation, T value) {
  switch (activation) {
    case Activation::kNone:
      break;
    case Activation::kRelu:
      return Activate<Activation::kRelu>(value);
    case Activation::kRelu6:
      return Activate<Activation::kRelu6>(value);
  }
  return value;
}

// Computes one image, like the two functions below.
template <typename Operand>
struct DepthwiseForwardBody {
  using S = typename Operand::Storage;
  const DepthwiseConvolutionShape& shape;
  const DepthwiseAxes& axes;
  const S* x;
  const float* weights;
  const Epilogue& epilogue;
  const S* addend;  // or null
  S* y;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    for (int64_t h = 0; h < axes.vertical.windows; ++h) {
      for (int64_t w = 0; w < axes.horizontal.windows; ++w) RunPixel<T, kCount>(h, w, channel);
    }
  }

  template <typename T, int kCount>
  MUSTER_ALWAYS_INLINE void RunPixel(int64_t h, int64_t w, int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    const Range rows = axes.vertical.PixelsOf(h);
    const Range columns = axes.horizontal.PixelsOf(w);
    T sum[kCount] = {};
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t column = columns.begin; column < columns.end; ++column) {
        const int64_t tap =
            (row - axes.vertical.Begin(h)) * shape.kernel + column - axes.horizontal.Begin(w);
        const S* p = x + (row * shape.width + column) * shape.channels + channel;
        const float* q = weights + tap * axes.padded_channels + channel;
        for (int i = 0; i < kCount; ++i) {
          const T weight = RoundToType(shape.compute_type, Element<T>::Load(q + i * kWidth));
          sum[i] = sum[i] + Operand::Round(Operand::template Load<T>(p + i * kWidth)) * weight;
        }
      }
    }
    const int64_t at = (h * axes.horizontal.windows + w) * shape.channels + channel;
    for (int i = 0; i < kCount; ++i) {
      Element<T>::Store(y + at + i * kWidth, Finish(sum[i], channel + i * kWidth, at + i * kWidth));
    }
  }

  template <typename T>
  MUSTER_ALWAYS_INLINE T Finish(T sum, int64_t channel, int64_t at) const {
    if (epilogue.scale != nullptr) sum = sum * Element<T>::Load(epilogue.scale + channel);
    if (epilogue.shift != nullptr) sum = sum + Element<T>::Load(epilogue.shift + channel);
    if (addend != nullptr) sum = sum + Element<T>::Load(addend + at);
    return ActivateAs(epilogue.activation, sum);
  }
};

template <typename Operand>
struct DepthwiseBackwardDataBody {
  using S = typename Operand::Storage;
  const DepthwiseConvolutionShape& shape;
  const DepthwiseAxes& axes;
  const S* dy;
  const float* weights;
  S* dx;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    for (int64_t h = 0; h < shape.height; ++h) {
      for (int64_t w = 0; w < shape.width; ++w) RunPixel<T, kCount>(h, w, channel);
    }
  }

  // Sums over every stride-th tap whose window exists: other taps would read zeros between the
  // outputs.
  template <typename T, int kCount>
  MUSTER_ALWAYS_INLINE void RunPixel(int64_t h, int64_t w, int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    T sum[kCount] = {};
    const int64_t below = h + shape.padding;
    const int64_t right = w + shape.padding;
    for (int64_t r = below % shape.stride; r < shape.kernel && r <= below; r += shape.stride) {
      const int64_t row = (below - r) / shape.stride;
      if (row >= axes.vertical.windows) continue;
      for (int64_t s = right % shape.stride; s < shape.kernel && s <= right; s += shape.stride) {
        const int64_t column = (right - s) / shape.stride;
        if (column >= axes.horizontal.windows) continue;
        const S* p = dy + (row * axes.horizontal.windows + column) * shape.channels + channel;
        const float* q = weights + (r * shape.kernel + s) * axes.padded_channels + channel;
        for (int i = 0; i < kCount; ++i) {
          const T weight = RoundToType(shape.compute_type, Element<T>::Load(q + i * kWidth));
          sum[i] = sum[i] + Operand::Round(Operand::template Load<T>(p + i * kWidth)) * weight;
        }
      }
    }
    S* const to = dx + (h * shape.width + w) * shape.channels + channel;
    for (int i = 0; i < kCount; ++i) Element<T>::Store(to + i * kWidth, sum[i]);
  }
};

// Accumulates to dweights and dbias: summing each image first reduces rounding errors.
template <typename Operand>
struct DepthwiseBackwardWeightsBody {
  using S = typename Operand::Storage;
  const DepthwiseConvolutionShape& shape;
  const DepthwiseAxes& axes;
  const S* x;
  const S* dy;
  float* dweights;
  float* dbias;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    for (int64_t r = 0; r < shape.kernel; ++r) {
      for (int64_t s = 0; s < shape.kernel; ++s) {
        T sum[kCount] = {};
        SumTap(r, s, channel, sum);
        Add(sum, dweights + (r * shape.kernel + s) * axes.padded_channels + channel);
      }
    }
    if (dbias == nullptr) return;
    T sum[kCount] = {};
    const S* p = dy + channel;
    for (int64_t pixel = 0; pixel < axes.out_pixels(); ++pixel, p += shape.channels) {
      for (int i = 0; i < kCount; ++i) {
        sum[i] = sum[i] + Operand::Round(Operand::template Load<T>(p + i * Element<T>::kWidth));
      }
    }
    Add(sum, dbias + channel);
  }

  template <typename T, int kCount>
  MUSTER_ALWAYS_INLINE void SumTap(int64_t r, int64_t s, int64_t channel, T (&sum)[kCount]) const {
    constexpr int kWidth = Element<T>::kWidth;
    const Range rows = axes.vertical.WindowsWithCell(r);
    const Range columns = axes.horizontal.WindowsWithCell(s);
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      const int64_t in_row = axes.vertical.Begin(h) + r;
      const int64_t in_column = axes.horizontal.Begin(columns.begin) + s;
      const int64_t out = h * axes.horizontal.windows + columns.begin;
      const S* p = x + (in_row * shape.width + in_column) * shape.channels + channel;
      const S* q = dy + out * shape.channels + channel;
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        for (int i = 0; i < kCount; ++i) {
          sum[i] = sum[i] + Operand::Round(Operand::template Load<T>(p + i * kWidth)) *
                                Operand::Round(Operand::template Load<T>(q + i * kWidth));
        }
        p += shape.stride * shape.channels;
        q += shape.channels;
      }
    }
  }

  template <typename T, int kCount>
  MUSTER_ALWAYS_INLINE void Add(const T (&sum)[kCount], float* to) const {
    for (int i = 0; i < kCount; ++i, to += Element<T>::kWidth) {
      Element<T>::Store(to, Element<T>::Load(to) + sum[i]);
    }
  }
};

inline ThreeGeometry ForwardGeometry(const DepthwiseConvolutionShape& shape,
                                     const DepthwiseAxes& axes) {
  return {shape.samples,           shape.height,   shape.width,  axes.vertical.windows,
          axes.horizontal.windows, shape.channels, shape.padding};
}

// Whether three_body.h supports the shape.
inline bool IsThree(const DepthwiseConvolutionShape& shape) {
  return shape.kernel == 3 && shape.channels >= kLanes &&
         (shape.stride == 1 || shape.stride == 2) && shape.padding <= 3 - shape.stride;
}

#if defined(__AVX512BF16__)
// Whether dot_body.h supports the shape.
inline bool IsDot(const DepthwiseConvolutionShape& shape) {
  return IsThree(shape) && shape.padding == 1 && shape.channels >= kDotLanes &&
         shape.type == DataType::kBfloat16 && shape.compute_type == DataType::kBfloat16;
}

template <int kStride>
inline void ForwardDot(const DotForward& forward, const Bfloat16* x) {
  const Epilogue& e = forward.epilogue;
  if (e.scale != nullptr || e.shift != nullptr || e.addend != nullptr ||
      e.activation != Activation::kNone) {
    forward.Run<kStride, true>(x);
  } else {
    forward.Run<kStride, false>(x);
  }
}

inline void DotConvolutionForward(const DepthwiseConvolutionShape& shape, const void* x,
                                  const float* weights, const Epilogue& epilogue, void* y) {
  const ThreeGeometry geometry = ForwardGeometry(shape, DepthwiseAxes(shape));
  const DotForward forward{geometry, weights, false, epilogue, static_cast<Bfloat16*>(y)};
  const auto* from = static_cast<const Bfloat16*>(x);
  return shape.stride == 1 ? ForwardDot<1>(forward, from) : ForwardDot<2>(forward, from);
}

inline void DotConvolutionBackwardData(const DepthwiseConvolutionShape& shape, const void* dy,
                                       const float* weights, void* dx) {
  const ThreeGeometry geometry = ForwardGeometry(shape, DepthwiseAxes(shape));
  const auto* from = static_cast<const Bfloat16*>(dy);
  auto* to = static_cast<Bfloat16*>(dx);
  if (shape.stride == 2) return DotBackwardStride2{geometry, weights, from, to}.Run();
  // With a padding of 1, the geometry is the same in both directions.
  DotForward{geometry, weights, true, {}, to}.Run<1, false>(from);
}

inline void DotConvolutionBackwardWeights(const DepthwiseConvolutionShape& shape, const void* x,
                                          const void* dy, float* dweights, float* dbias) {
  const ThreeGeometry geometry = ForwardGeometry(shape, DepthwiseAxes(shape));
  const DotBackwardWeights backward{geometry, static_cast<const Bfloat16*>(x),
                                    static_cast<const Bfloat16*>(dy), dweights, dbias};
  return shape.stride == 1 ? backward.Run<1>() : backward.Run<2>();
}
#endif  // __AVX512BF16__

template <typename Operand, int kStride>
inline void ForwardThree(const ThreeForward<typename Operand::Storage>& forward,
                         const typename Operand::Storage* x) {
  const Epilogue& epilogue = forward.epilogue;
  if (epilogue.addend != nullptr || epilogue.activation != Activation::kNone) {
    forward.template Run<Operand, kStride, true>(x);
  } else {
    forward.template Run<Operand, kStride, false>(x);
  }
}

template <typename Operand>
inline void DepthwiseForward(const DepthwiseConvolutionShape& shape,
                             const typename Operand::Storage* x, const float* weights,
                             const Epilogue& epilogue, typename Operand::Storage* y) {
  using S = typename Operand::Storage;
  const DepthwiseAxes axes(shape);
  if (IsThree(shape)) {
    const ThreeGeometry geometry = ForwardGeometry(shape, axes);
    const ThreeForward<S> forward{geometry, weights, false, shape.compute_type, epilogue, y};
    return shape.stride == 1 ? ForwardThree<Operand, 1>(forward, x)
                             : ForwardThree<Operand, 2>(forward, x);
  }
  const int64_t out_sample = axes.out_pixels() * shape.channels;
  const S* addend = static_cast<const S*>(epilogue.addend);
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    ForEachChannelBlock(shape.channels, DepthwiseForwardBody<Operand>{shape, axes, x, weights,
                                                                      epilogue, addend, y});
    x += shape.height * shape.width * shape.channels;
    y += out_sample;
    if (addend != nullptr) addend += out_sample;
  }
}

template <typename Operand>
inline void DepthwiseBackwardData(const DepthwiseConvolutionShape& shape,
                                  const typename Operand::Storage* dy, const float* weights,
                                  typename Operand::Storage* dx) {
  const DepthwiseAxes axes(shape);
  ThreeGeometry geometry = ForwardGeometry(shape, axes);
  if (IsThree(shape) && shape.stride == 1) {
    // A convolution of dy with the kernel rotated by 180 degrees.
    geometry = {shape.samples, geometry.out_height, geometry.out_width, shape.height,
                shape.width,   shape.channels,      2 - shape.padding};
    const ThreeForward<typename Operand::Storage> forward{geometry,           weights, true,
                                                          shape.compute_type, {},      dx};
    return forward.template Run<Operand, 1, false>(dy);
  }
  if (IsThree(shape) && shape.padding == 1) {
    return ThreeBackwardStride2<Operand>{geometry, weights, shape.compute_type, dy, dx}.Run();
  }
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    ForEachChannelBlock(shape.channels,
                        DepthwiseBackwardDataBody<Operand>{shape, axes, dy, weights, dx});
    dy += axes.out_pixels() * shape.channels;
    dx += shape.height * shape.width * shape.channels;
  }
}

template <typename Operand>
inline void DepthwiseBackwardWeights(const DepthwiseConvolutionShape& shape,
                                     const typename Operand::Storage* x,
                                     const typename Operand::Storage* dy, float* dweights,
                                     float* dbias) {
  const DepthwiseAxes axes(shape);
  if (IsThree(shape)) {
    const ThreeGeometry geometry = ForwardGeometry(shape, axes);
    const ThreeBackwardWeights<Operand> backward{geometry, x, dy, dweights, dbias};
    return shape.stride == 1 ? backward.template Run<1>() : backward.template Run<2>();
  }
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    ForEachChannelBlock(shape.channels,
                        DepthwiseBackwardWeightsBody<Operand>{shape, axes, x, dy, dweights, dbias});
    x += shape.height * shape.width * shape.channels;
    dy += axes.out_pixels() * shape.channels;
  }
}

inline void DepthwiseConvolutionForward(const DepthwiseConvolutionShape& shape, const void* x,
                                        const float* weights, const Epilogue& epilogue, void* y) {
#if defined(__AVX512BF16__)
  if (IsDot(shape)) return DotConvolutionForward(shape, x, weights, epilogue, y);
#endif
  VisitOperand(shape, [&]<typename Operand>(Operand) {
    using S = typename Operand::Storage;
    DepthwiseForward<Operand>(shape, static_cast<const S*>(x), weights, epilogue,
                              static_cast<S*>(y));
  });
}

inline void DepthwiseConvolutionBackwardData(const DepthwiseConvolutionShape& shape, const void* dy,
                                             const float* weights, void* dx) {
#if defined(__AVX512BF16__)
  if (IsDot(shape)) return DotConvolutionBackwardData(shape, dy, weights, dx);
#endif
  VisitOperand(shape, [&]<typename Operand>(Operand) {
    using S = typename Operand::Storage;
    DepthwiseBackwardData<Operand>(shape, static_cast<const S*>(dy), weights, static_cast<S*>(dx));
  });
}

inline void DepthwiseConvolutionBackwardWeights(const DepthwiseConvolutionShape& shape,
                                                const void* x, const void* dy, float* dweights,
                                                float* dbias) {
  const int64_t weights = shape.kernel * shape.kernel * DepthwiseAxes(shape).padded_channels;
  __builtin_memset(dweights, 0, weights * sizeof(float));
  if (dbias != nullptr) __builtin_memset(dbias, 0, shape.channels * sizeof(float));
#if defined(__AVX512BF16__)
  if (IsDot(shape)) return DotConvolutionBackwardWeights(shape, x, dy, dweights, dbias);
#endif
  VisitOperand(shape, [&]<typename Operand>(Operand) {
    using S = typename Operand::Storage;
    DepthwiseBackwardWeights<Operand>(shape, static_cast<const S*>(x), static_cast<const S*>(dy),
                                      dweights, dbias);
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_CONVOLUTION_BODY_H_
