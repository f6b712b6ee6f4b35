// Batch norm with its ReLU and pooling; see kernels/batch_norm.h. Compiled once per instruction
// set.
//
// Forward reads x twice (statistics, then everything else), backward twice (parameters, then data).
// What each pass needs per channel stays in registers while it walks over the pixels.
#ifndef MUSTER_KERNELS_CPU_BATCH_NORM_BODY_H_
#define MUSTER_KERNELS_CPU_BATCH_NORM_BODY_H_

#include <cstdint>

#include "kernels/batch_norm.h"
#include "kernels/cpu/vector.h"
#include "kernels/functors.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Float sums run over this many pixels, then go on in double.
inline constexpr int64_t kPixelsPerSum = 256;

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
      variance[channel + i] = static_cast<float>(spread > 0 ? spread : 0);
    }
  }
};

inline void BatchNormStatistics(const BatchNormShape& shape, const float* x, float* mean,
                                float* variance) {
  ForEachChannelBlock(shape.channels, StatisticsBody{shape, x, mean, variance});
}

// The largest of four and its index; the index is 4 and the value 0 where the largest is not above
// zero.
template <typename T>
struct Largest {
  T value;
  typename Element<T>::Int index;

  Largest(T a, T b, T c, T d, bool relu) : value(a), index(Element<T>::SplatInt(0)) {
    Consider(b, 1);
    Consider(c, 2);
    Consider(d, 3);
    if (relu) {
      index = value <= T{} ? Element<T>::SplatInt(4) : index;
      value = ReluFunctor<T>()(value);
    }
  }

  void Consider(T candidate, int32_t candidate_index) {
    index = candidate > value ? Element<T>::SplatInt(candidate_index) : index;
    value = candidate > value ? candidate : value;
  }
};

// Walks over the 2x2 squares of an NHWC tensor: calls visit(offset of the square's first pixel,
// offset of the pooled pixel), both in elements.
template <typename Visit>
MUSTER_ALWAYS_INLINE void ForEachSquare(int64_t rows, int64_t height, int64_t width,
                                        int64_t channels, const Visit& visit) {
  const int64_t out_height = height / 2;
  const int64_t out_width = width / 2;
  int64_t out = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t h = 0; h < out_height; ++h) {
      int64_t in = (row * height + 2 * h) * width * channels;
      for (int64_t w = 0; w < out_width; ++w, in += 2 * channels, out += channels) visit(in, out);
    }
  }
}

// Calls visit(offset) for the first channel of every pixel that no square covers.
template <typename Visit>
MUSTER_ALWAYS_INLINE void ForEachUncovered(int64_t rows, int64_t height, int64_t width,
                                           int64_t channels, const Visit& visit) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t base = row * height * width * channels;
    if (width % 2 != 0) {
      for (int64_t h = 0; h < height; ++h) visit(base + (h * width + width - 1) * channels);
    }
    if (height % 2 != 0) {
      for (int64_t w = 0; w < width / 2 * 2; ++w) {
        visit(base + ((height - 1) * width + w) * channels);
      }
    }
  }
}

template <bool kRelu, bool kPool>
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
          const Largest<T> largest(affine(i, p), affine(i, p + channels), affine(i, p + line),
                                   affine(i, p + line + channels), kRelu);
          const int64_t at = out + channel + i * kWidth;
          Element<T>::Store(y + at, largest.value);
          if (choice != nullptr) Element<T>::StoreBytes(choice + at, largest.index);
        }
      });
    } else {
      const int64_t end = PixelsOf(shape) * channels;
      for (int64_t at = channel; at < end; at += channels) {
        for (int i = 0; i < kCount; ++i) {
          T value = affine(i, x + at + i * kWidth);
          if constexpr (kRelu) value = ReluFunctor<T>()(value);
          Element<T>::Store(y + at + i * kWidth, value);
        }
      }
    }
  }
};

inline void BatchNormApply(const BatchNormShape& shape, const float* x, const float* scale,
                           const float* shift, float* y, uint8_t* choice) {
  if (shape.pool) {
    ForEachChannelBlock(shape.channels, ApplyBody<true, true>{shape, x, scale, shift, y, choice});
  } else if (shape.relu) {
    ForEachChannelBlock(shape.channels, ApplyBody<true, false>{shape, x, scale, shift, y, choice});
  } else {
    ForEachChannelBlock(shape.channels, ApplyBody<false, false>{shape, x, scale, shift, y, choice});
  }
}

template <bool kRelu, bool kPool>
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
            dy = index == 4 ? T{} : dy;
          } else if constexpr (kRelu) {
            dy = ReluBackwardFunctor<T>()(AffineFunctor<T>{scales[i], shifts[i]}(value), dy);
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
  if (shape.pool) {
    ForEachChannelBlock(shape.channels, ParametersBody<true, true>{shape, gradient, dgamma, dbeta});
  } else if (shape.relu) {
    ForEachChannelBlock(shape.channels,
                        ParametersBody<true, false>{shape, gradient, dgamma, dbeta});
  } else {
    ForEachChannelBlock(shape.channels,
                        ParametersBody<false, false>{shape, gradient, dgamma, dbeta});
  }
}

template <bool kRelu, bool kPool>
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
    const double pixels = static_cast<double>(PixelsOf(shape));
    for (int i = 0; i < kChannels; ++i) {
      const int64_t c = channel + i;
      const double scale = static_cast<double>(gradient.scale[c]);
      const double dx_slope = -scale * static_cast<double>(gradient.inverse_deviation[c]) *
                              static_cast<double>(dgamma[c]) / pixels;
      slope[i] = static_cast<float>(dx_slope);
      offset[i] = static_cast<float>(-scale * static_cast<double>(dbeta[c]) / pixels -
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
          T dy = Element<T>::Load(gradient.dy + at);
          if constexpr (kRelu) {
            const T value = Element<T>::Load(gradient.x + at);
            dy = ReluBackwardFunctor<T>()(AffineFunctor<T>{scales[i], shifts[i]}(value), dy);
          }
          write(i, at, dy);
        }
      }
    }
  }
};

inline void BatchNormBackwardData(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                  const float* dgamma, const float* dbeta, float* dx) {
  if (shape.pool) {
    ForEachChannelBlock(shape.channels, DataBody<true, true>{shape, gradient, dgamma, dbeta, dx});
  } else if (shape.relu) {
    ForEachChannelBlock(shape.channels, DataBody<true, false>{shape, gradient, dgamma, dbeta, dx});
  } else {
    ForEachChannelBlock(shape.channels, DataBody<false, false>{shape, gradient, dgamma, dbeta, dx});
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_BATCH_NORM_BODY_H_
