// Batch norm with its activation and pooling; see kernels/batch_norm.h. Compiled once per
// instruction set.
//
// Forward reads x twice (statistics, then everything else), backward twice (parameters, then data).
// What each pass needs per channel stays in registers while it walks over the pixels.
#ifndef MUSTER_KERNELS_CPU_BATCH_NORM_BODY_H_
#define MUSTER_KERNELS_CPU_BATCH_NORM_BODY_H_

#include <cstdint>

#include "kernels/batch_norm.h"
#include "kernels/cpu/activation_body.h"
#include "kernels/cpu/squares.h"
#include "kernels/cpu/vector.h"
#include "kernels/functors.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Float sums run over this many pixels, then go on in double.
inline constexpr int64_t kPixelsPerSum = 256;

// Runs Body<activation, pool> over blocks of channels.
template <template <Activation, bool> typename Body, typename... Arguments>
inline void RunFused(const BatchNormShape& shape, const Arguments&... arguments) {
  const int64_t channels = shape.channels;
  if (shape.pool) {
    return ForEachChannelBlock(channels, Body<Activation::kRelu, true>{shape, arguments...});
  }
  switch (shape.activation) {
    case Activation::kNone:
      return ForEachChannelBlock(channels, Body<Activation::kNone, false>{shape, arguments...});
    case Activation::kRelu:
      return ForEachChannelBlock(channels, Body<Activation::kRelu, false>{shape, arguments...});
    case Activation::kRelu6:
      return ForEachChannelBlock(channels, Body<Activation::kRelu6, false>{shape, arguments...});
  }
}

inline int64_t PixelsOf(const BatchNormShape& shape) {
  return shape.rows * shape.height * shape.width;
}

// A double sum per channel of a block.
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

template <typename T, int kCount>
struct ChannelValues {
  T values[kCount];
  explicit ChannelValues(const float* p) {
    for (int i = 0; i < kCount; ++i) values[i] = Element<T>::Load(p + i * Element<T>::kWidth);
  }
  T operator[](int i) const { return values[i]; }
};

struct StatisticsBody {
  const BatchNormShape& shape;
  const float* x;
  float* mean;
  float* variance;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    const int64_t pixels = PixelsOf(shape);
    // Sums of the distance from a value of the channel's own: nothing cancels when the mean is far
    // from zero.
    const ChannelValues<T, kCount> pivot(x + channel);
    DoubleSums<T, kCount> sums;
    DoubleSums<T, kCount> squares;
    for (int64_t begin = 0; begin < pixels; begin += kPixelsPerSum) {
      const int64_t end = begin + kPixelsPerSum < pixels ? begin + kPixelsPerSum : pixels;
      T sum[kCount] = {};
      T square[kCount] = {};
      const float* p = x + begin * shape.channels + channel;
      for (int64_t pixel = begin; pixel < end; ++pixel, p += shape.channels) {
        for (int i = 0; i < kCount; ++i) {
          const T distance = Element<T>::Load(p + i * kWidth) - pivot[i];
          sum[i] = sum[i] + distance;
          square[i] = square[i] + distance * distance;
        }
      }
      sums.Add(sum);
      squares.Add(square);
    }
    for (int i = 0; i < kCount * kWidth; ++i) {
      const double shift = sums.values[i] / static_cast<double>(pixels);
      const double spread = squares.values[i] / static_cast<double>(pixels) - shift * shift;
      mean[channel + i] = static_cast<float>(static_cast<double>(x[channel + i]) + shift);
      variance[channel + i] = static_cast<float>(spread < 0 ? 0 : spread);
    }
  }
};

inline void BatchNormStatistics(const BatchNormShape& shape, const float* x, float* mean,
                                float* variance) {
  ForEachChannelBlock(shape.channels, StatisticsBody{shape, x, mean, variance});
}

template <Activation kActivation, bool kPool>
struct ApplyBody {
  const BatchNormShape& shape;
  const float* x;
  const float* scale;
  const float* shift;
  float* y;
  uint8_t* choice;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    const int64_t channels = shape.channels;
    const ChannelValues<T, kCount> scales(scale + channel);
    const ChannelValues<T, kCount> shifts(shift + channel);
    const auto affine = [&](int i, const float* p) {
      return AffineFunctor<T>{scales[i], shifts[i]}(Element<T>::Load(p));
    };
    if constexpr (kPool) {
      const int64_t line = shape.width * channels;
      ForEachSquare(shape.rows, shape.height, shape.width, channels, [&](int64_t in, int64_t out) {
        for (int i = 0; i < kCount; ++i) {
          const float* p = x + in + channel + i * kWidth;
          const Largest<T> largest =
              LargestOfSquare<T>(affine(i, p), affine(i, p + channels), affine(i, p + line),
                                 affine(i, p + line + channels), /*relu=*/true);
          const int64_t at = out + channel + i * kWidth;
          Element<T>::Store(y + at, largest.value);
          if (choice != nullptr) Element<T>::StoreBytes(choice + at, largest.index);
        }
      });
    } else {
      const int64_t end = PixelsOf(shape) * channels;
      for (int64_t at = channel; at < end; at += channels) {
        for (int i = 0; i < kCount; ++i) {
          const T value = affine(i, x + at + i * kWidth);
          Element<T>::Store(y + at + i * kWidth, Activate<kActivation>(value));
        }
      }
    }
  }
};

inline void BatchNormApply(const BatchNormShape& shape, const float* x, const float* scale,
                           const float* shift, float* y, uint8_t* choice) {
  RunFused<ApplyBody>(shape, x, scale, shift, y, choice);
}

template <Activation kActivation, bool kPool>
struct ParametersBody {
  const BatchNormShape& shape;
  const BatchNormGradient& gradient;
  float* dgamma;
  float* dbeta;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    using Int = typename Element<T>::Int;
    const int64_t channels = shape.channels;
    const ChannelValues<T, kCount> means(gradient.mean + channel);
    const ChannelValues<T, kCount> scales(gradient.scale + channel);
    const ChannelValues<T, kCount> shifts(gradient.shift + channel);
    DoubleSums<T, kCount> sums;
    DoubleSums<T, kCount> products;
    constexpr int kStep = kPool ? 2 : 1;
    const int64_t in_line = shape.width * channels;
    const int64_t out_width = shape.width / kStep;
    const int64_t out_height = shape.height / kStep;
    // Float sums run along a line of the output, then go on in double.
    for (int64_t line = 0; line < shape.rows * out_height; ++line) {
      const int64_t in_h = line / out_height * shape.height + line % out_height * kStep;
      const float* p = gradient.x + in_h * in_line + channel;
      int64_t at = line * out_width * channels + channel;
      T sum[kCount] = {};
      T product[kCount] = {};
      for (int64_t w = 0; w < out_width; ++w, p += kStep * channels, at += channels) {
        for (int i = 0; i < kCount; ++i) {
          const float* q = p + i * kWidth;
          T value = Element<T>::Load(q);
          T dy = Element<T>::Load(gradient.dy + at + i * kWidth);
          if constexpr (kPool) {
            const Int index = Element<T>::LoadBytes(gradient.choice + at + i * kWidth);
            value = index == 1 ? Element<T>::Load(q + channels) : value;
            value = index == 2 ? Element<T>::Load(q + in_line) : value;
            value = index == 3 ? Element<T>::Load(q + in_line + channels) : value;
            dy = index == kNoChoice ? T{} : dy;
          } else {
            dy = PassBack<kActivation>(AffineFunctor<T>{scales[i], shifts[i]}(value), dy);
          }
          sum[i] = sum[i] + dy;
          product[i] = product[i] + dy * (value - means[i]);
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

inline void BatchNormBackwardParameters(const BatchNormShape& shape,
                                        const BatchNormGradient& gradient, float* dgamma,
                                        float* dbeta) {
  RunFused<ParametersBody>(shape, gradient, dgamma, dbeta);
}

template <Activation kActivation, bool kPool>
struct DataBody {
  const BatchNormShape& shape;
  const BatchNormGradient& gradient;
  const float* dgamma;
  const float* dbeta;
  float* dx;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    constexpr int kWidth = Element<T>::kWidth;
    constexpr int kChannels = kCount * kWidth;
    const int64_t channels = shape.channels;
    float slope[kChannels];
    float offset[kChannels];
    for (int i = 0; i < kChannels; ++i) {
      const int64_t c = channel + i;
      const double scale = static_cast<double>(gradient.scale[c]);
      const double dx_slope = -scale * static_cast<double>(gradient.inverse_deviation[c]) *
                              static_cast<double>(dgamma[c]) / gradient.pixels;
      slope[i] = static_cast<float>(dx_slope);
      offset[i] = static_cast<float>(-scale * static_cast<double>(dbeta[c]) / gradient.pixels -
                                     dx_slope * static_cast<double>(gradient.mean[c]));
    }
    const ChannelValues<T, kCount> scales(gradient.scale + channel);
    const ChannelValues<T, kCount> shifts(gradient.shift + channel);
    const ChannelValues<T, kCount> slopes(slope);
    const ChannelValues<T, kCount> offsets(offset);
    const auto write = [&](int i, int64_t at, T dy) {
      const T value = Element<T>::Load(gradient.x + at);
      Element<T>::Store(dx + at,
                        BatchNormBackwardFunctor<T>{scales[i], slopes[i], offsets[i]}(value, dy));
    };
    if constexpr (kPool) {
      const int64_t line = shape.width * channels;
      ForEachSquare(shape.rows, shape.height, shape.width, channels, [&](int64_t in, int64_t out) {
        for (int i = 0; i < kCount; ++i) {
          const int64_t from = out + channel + i * kWidth;
          const int64_t to = in + channel + i * kWidth;
          const T dy = Element<T>::Load(gradient.dy + from);
          const typename Element<T>::Int index = Element<T>::LoadBytes(gradient.choice + from);
          write(i, to, index == 0 ? dy : T{});
          write(i, to + channels, index == 1 ? dy : T{});
          write(i, to + line, index == 2 ? dy : T{});
          write(i, to + line + channels, index == 3 ? dy : T{});
        }
      });
      ForEachUncovered(shape.rows, shape.height, shape.width, channels, [&](int64_t at) {
        for (int i = 0; i < kCount; ++i) write(i, at + channel + i * kWidth, T{});
      });
    } else {
      const int64_t end = PixelsOf(shape) * channels;
      for (int64_t pixel = channel; pixel < end; pixel += channels) {
        for (int i = 0; i < kCount; ++i) {
          const int64_t at = pixel + i * kWidth;
          const T value = Element<T>::Load(gradient.x + at);
          const T dy = Element<T>::Load(gradient.dy + at);
          write(i, at, PassBack<kActivation>(AffineFunctor<T>{scales[i], shifts[i]}(value), dy));
        }
      }
    }
  }
};

inline void BatchNormBackwardData(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                  const float* dgamma, const float* dbeta, float* dx) {
  RunFused<DataBody>(shape, gradient, dgamma, dbeta, dx);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_BATCH_NORM_BODY_H_
