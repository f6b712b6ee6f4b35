// Batch norm fused with ReLU and 2x2 max pooling; see kernels/batch_norm.h. Compiled once per
// instruction set.
#ifndef MUSTER_KERNELS_CPU_NORMALIZATION_BATCH_NORM_POOL_BODY_H_
#define MUSTER_KERNELS_CPU_NORMALIZATION_BATCH_NORM_POOL_BODY_H_

#include <cstdint>

#include "kernels/batch_norm.h"
#include "kernels/cpu/activation/non_overlapping_pool.h"
#include "kernels/cpu/vector/columns.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/functors.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

inline int64_t PixelsOf(const BatchNormShape& shape) {
  return shape.samples * shape.height * shape.width;
}

inline double PixelsOf(const BatchNormGradient& gradient) {
  return gradient.shared_pixels != nullptr ? *gradient.shared_pixels : gradient.pixels;
}

// Slope of BatchNormBackwardFunctor for channel c.
inline double SlopeOf(const BatchNormGradient& gradient, const float* dgamma, int64_t c) {
  return -static_cast<double>(gradient.scale[c]) *
         static_cast<double>(gradient.inverse_deviation[c]) * static_cast<double>(dgamma[c]) /
         PixelsOf(gradient);
}
inline float DataSlope(const BatchNormGradient& gradient, const float* dgamma, int64_t c) {
  return static_cast<float>(SlopeOf(gradient, dgamma, c));
}
inline float DataOffset(const BatchNormGradient& gradient, const float* dgamma, const float* dbeta,
                        int64_t c) {
  const double scale = static_cast<double>(gradient.scale[c]);
  return static_cast<float>(-scale * static_cast<double>(dbeta[c]) / PixelsOf(gradient) -
                            SlopeOf(gradient, dgamma, c) * static_cast<double>(gradient.mean[c]));
}

// One double sum per channel of a block.
template <typename T, int kCount>
struct DoubleSums {
  static constexpr int kChannels = kCount * Element<T>::kWidth;
  double values[kChannels] = {};

  void Add(const T (&sums)[kCount]) {
    float floats[kChannels];
    for (int i = 0; i < kCount; ++i) Element<T>::Store(floats + i * Element<T>::kWidth, sums[i]);
    for (int i = 0; i < kChannels; ++i) values[i] += static_cast<double>(floats[i]);
  }
};

template <typename Storage>
struct PooledApplyBody {
  const BatchNormShape& shape;
  const Storage* x;
  const float* scale;
  const float* shift;
  Storage* y;
  uint8_t* choice;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    const int64_t channels = shape.channels;
    const ChannelValues<T, kCount> scales(scale + channel);
    const ChannelValues<T, kCount> shifts(shift + channel);
    const auto affine = [&](int i, const Storage* p) {
      return AffineFunctor<T>{scales[i], shifts[i]}(Element<T>::Load(p));
    };
    const int64_t row_stride = shape.width * channels;
    ForEach2x2Window(
        shape.samples, shape.height, shape.width, channels, [&](int64_t in, int64_t out) {
          for (int i = 0; i < kCount; ++i) {
            const Storage* p = x + in + channel + i * kWidth;
            const Largest<T> largest =
                LargestOf2x2<T>(affine(i, p), affine(i, p + channels), affine(i, p + row_stride),
                                affine(i, p + row_stride + channels), /*relu=*/true);
            const int64_t at = out + channel + i * kWidth;
            Element<T>::Store(y + at, largest.value);
            if (choice != nullptr) Element<T>::StoreBytes(choice + at, largest.index);
          }
        });
  }
};

inline void PooledApply(const BatchNormShape& shape, const void* x, const float* scale,
                        const float* shift, void* y, uint8_t* choice) {
  DispatchType(shape.type, [&](auto element) {
    using Storage = decltype(element);
    ForEachChannelBlock(shape.channels,
                        PooledApplyBody<Storage>{shape, static_cast<const Storage*>(x), scale,
                                                 shift, static_cast<Storage*>(y), choice});
  });
}

template <typename Storage>
struct PooledParametersBody {
  const BatchNormShape& shape;
  const BatchNormGradient& gradient;
  const Storage* x;
  const Storage* dy;
  float* dgamma;
  float* dbeta;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    using Int = typename Element<T>::Int;
    const int64_t channels = shape.channels;
    const ChannelValues<T, kCount> means(gradient.mean + channel);
    DoubleSums<T, kCount> sums;
    DoubleSums<T, kCount> products;
    const int64_t in_row_stride = shape.width * channels;
    const int64_t out_width = shape.width / 2;
    const int64_t out_height = shape.height / 2;
    // Sums in float along a row of the output, then in double.
    for (int64_t row = 0; row < shape.samples * out_height; ++row) {
      const int64_t in_h = row / out_height * shape.height + row % out_height * 2;
      const Storage* p = x + in_h * in_row_stride + channel;
      int64_t at = row * out_width * channels + channel;
      T sum[kCount] = {};
      T product[kCount] = {};
      for (int64_t w = 0; w < out_width; ++w, p += 2 * channels, at += channels) {
        for (int i = 0; i < kCount; ++i) {
          const Storage* q = p + i * kWidth;
          const Int index = Element<T>::LoadBytes(gradient.choice + at + i * kWidth);
          T value = Element<T>::Load(q);
          value = index == 1 ? Element<T>::Load(q + channels) : value;
          value = index == 2 ? Element<T>::Load(q + in_row_stride) : value;
          value = index == 3 ? Element<T>::Load(q + in_row_stride + channels) : value;
          const T given = Element<T>::Load(dy + at + i * kWidth);
          const T passed = index == kNoChoice ? T{} : given;
          sum[i] = sum[i] + passed;
          product[i] = product[i] + passed * (value - means[i]);
        }
      }
      sums.Add(sum);
      products.Add(product);
    }
    for (int i = 0; i < kCount * kWidth; ++i) {
      dbeta[channel + i] = static_cast<float>(sums.values[i]);
      dgamma[channel + i] = static_cast<float>(
          products.values[i] * static_cast<double>(gradient.inverse_deviation[channel + i]));
    }
  }
};

inline void PooledBackwardParameters(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                     float* dgamma, float* dbeta) {
  DispatchType(shape.type, [&](auto element) {
    using Storage = decltype(element);
    ForEachChannelBlock(
        shape.channels,
        PooledParametersBody<Storage>{shape, gradient, static_cast<const Storage*>(gradient.x),
                                      static_cast<const Storage*>(gradient.dy), dgamma, dbeta});
  });
}

template <typename Storage>
struct PooledDataBody {
  const BatchNormShape& shape;
  const BatchNormGradient& gradient;
  const float* dgamma;
  const float* dbeta;
  const Storage* x;
  const Storage* dy;
  Storage* dx;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    constexpr int kChannels = kCount * kWidth;
    const int64_t channels = shape.channels;
    float slope[kChannels];
    float offset[kChannels];
    for (int i = 0; i < kChannels; ++i) {
      slope[i] = DataSlope(gradient, dgamma, channel + i);
      offset[i] = DataOffset(gradient, dgamma, dbeta, channel + i);
    }
    const ChannelValues<T, kCount> scales(gradient.scale + channel);
    const ChannelValues<T, kCount> slopes(slope);
    const ChannelValues<T, kCount> offsets(offset);
    const auto write = [&](int i, int64_t at, T passed) {
      const BatchNormBackwardFunctor<T> functor{scales[i], slopes[i], offsets[i]};
      Element<T>::Store(dx + at, functor(Element<T>::Load(x + at), passed));
    };
    const int64_t row_stride = shape.width * channels;
    ForEach2x2Window(
        shape.samples, shape.height, shape.width, channels, [&](int64_t in, int64_t out) {
          for (int i = 0; i < kCount; ++i) {
            const int64_t from = out + channel + i * kWidth;
            const int64_t to = in + channel + i * kWidth;
            const T given = Element<T>::Load(dy + from);
            const typename Element<T>::Int index = Element<T>::LoadBytes(gradient.choice + from);
            write(i, to, index == 0 ? given : T{});
            write(i, to + channels, index == 1 ? given : T{});
            write(i, to + row_stride, index == 2 ? given : T{});
            write(i, to + row_stride + channels, index == 3 ? given : T{});
          }
        });
    ForEachUncovered(shape.samples, shape.height, shape.width, channels, [&](int64_t at) {
      for (int i = 0; i < kCount; ++i) write(i, at + channel + i * kWidth, T{});
    });
  }
};

inline void PooledBackwardData(const BatchNormShape& shape, const BatchNormGradient& gradient,
                               const float* dgamma, const float* dbeta, void* dx) {
  DispatchType(shape.type, [&](auto element) {
    using Storage = decltype(element);
    ForEachChannelBlock(shape.channels,
                        PooledDataBody<Storage>{
                            shape, gradient, dgamma, dbeta, static_cast<const Storage*>(gradient.x),
                            static_cast<const Storage*>(gradient.dy), static_cast<Storage*>(dx)});
  });
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_NORMALIZATION_BATCH_NORM_POOL_BODY_H_
