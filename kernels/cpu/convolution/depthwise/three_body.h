// Depthwise convolution with a 3x3 kernel and stride 1 or 2, for at least a vector of channels.
// Compiled once per instruction set.
//
// A channel block keeps its nine weights (backward: their gradients) in registers and iterates
// along rows of the image. The three input columns under a window also stay in registers, so that
// each value is loaded and widened once per row of windows, and once per two rows if they share
// input. Rows in the padding are read from a vector of zeros; columns in the padding are zero
// registers.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_THREE_BODY_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_THREE_BODY_H_

#include <cstdint>

#include "kernels/cpu/activation/activation_body.h"
#include "kernels/cpu/convolution/depthwise/bands.h"
#include "kernels/cpu/convolution/depthwise/operand.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/depthwise_convolution.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

inline constexpr int kThreeTaps = 9;
// Rows of windows processed together: two rows of input and nine weights fill 32 registers.
template <int kStride>
inline constexpr int kWindowRows = kStride == 1 && kRegisters == 32 ? 2 : 1;

template <typename S>
inline constexpr int kVectorBytes = kLanes * sizeof(S);
template <typename S>
inline constexpr S kZeroPixel[kLanes] = {};

template <typename S>
struct DepthwiseRow {
  const S* at;
  int64_t step;  // elements to the next column; 0 in the padding
};

// The input under kRows vertically adjacent windows, as they move along their rows.
template <typename Operand, int kStride, int kRows>
struct DepthwiseWindow {
  using S = typename Operand::Storage;
  static constexpr int kInputs = (kRows - 1) * kStride + 3;
  static constexpr int kKept = 3 - kStride;  // columns shared with the next window

  DepthwiseRow<S> rows[kInputs];
  Vector columns[3][kInputs];
  int64_t next;  // input column to load next
  int64_t width;

  // image: of one sample, at the channel block; h: row of the first window.
  MUSTER_ALWAYS_INLINE void Start(const ThreeGeometry& g, const S* image, int64_t h) {
#pragma clang loop unroll(full)
    for (int i = 0; i < kInputs; ++i) {
      const int64_t row = h * kStride - g.padding + i;
      const bool inside = row >= 0 && row < g.height;
      rows[i].at = inside ? image + row * g.width * g.channels : kZeroPixel<S>;
      rows[i].step = inside ? g.channels : 0;
    }
    next = -g.padding;
    width = g.width;
#pragma clang loop unroll(full)
    for (int i = 0; i < kKept; ++i) LoadOrClear(i);
  }

  MUSTER_ALWAYS_INLINE void Load(int column) {
#pragma clang loop unroll(full)
    for (int i = 0; i < kInputs; ++i) {
      columns[column][i] = Operand::Round(Operand::template Load<Vector>(rows[i].at));
      rows[i].at += rows[i].step;
    }
    ++next;
  }

  MUSTER_ALWAYS_INLINE void LoadOrClear(int column) {
    if (next >= 0 && next < width) return Load(column);
#pragma clang loop unroll(full)
    for (int i = 0; i < kInputs; ++i) columns[column][i] = Vector{};
    ++next;
  }

  MUSTER_ALWAYS_INLINE void Keep() {
#pragma clang loop unroll(full)
    for (int c = 0; c < kKept; ++c) {
#pragma clang loop unroll(full)
      for (int i = 0; i < kInputs; ++i) columns[c][i] = columns[c + kStride][i];
    }
  }

  // Calls visit() at each window of the row. The padding is at most kKept.
  template <typename Visit>
  MUSTER_ALWAYS_INLINE void Walk(const ThreeGeometry& g, const Visit& visit) {
    // Number of windows that end inside the image.
    const int64_t inside = g.width + g.padding < 3 ? 0 : (g.width + g.padding - 3) / kStride + 1;
    for (int64_t w = 0; w < inside; ++w) {
#pragma clang loop unroll(full)
      for (int i = kKept; i < 3; ++i) Load(i);
      visit();
      Keep();
    }
    for (int64_t w = inside; w < g.out_width; ++w) {
#pragma clang loop unroll(full)
      for (int i = kKept; i < 3; ++i) LoadOrClear(i);
      visit();
      Keep();
    }
  }
};

// Lower and upper bound of an activation.
struct ThreeBounds {
  explicit ThreeBounds(Activation activation)
      : low(Element<Vector>::Splat(activation == Activation::kNone ? -__builtin_inff() : 0)),
        high(Element<Vector>::Splat(activation == Activation::kRelu6 ? 6 : __builtin_inff())) {}

  MUSTER_ALWAYS_INLINE Vector Cut(Vector value) const {
    value = value < low ? low : value;  // keeps NaN
    return value > high ? high : value;
  }

  Vector low, high;
};

// Epilogue of a channel block.
struct ThreeEnd {
  Vector shift;
  ThreeBounds bounds;
};

template <typename S>
struct ThreeForward {
  const ThreeGeometry& g;
  const float* weights;
  bool flipped;  // the kernel rotated by 180 degrees, for backward data
  DataType compute_type;
  const Epilogue& epilogue;
  S* y;

  MUSTER_ALWAYS_INLINE void LoadWeights(int64_t channel, Vector (&to)[kThreeTaps]) const {
    const Vector scale = epilogue.scale != nullptr ? Element<Vector>::Load(epilogue.scale + channel)
                                                   : Element<Vector>::Splat(1);
#pragma clang loop unroll(full)
    for (int t = 0; t < kThreeTaps; ++t) {
      const int tap = flipped ? kThreeTaps - 1 - t : t;
      const float* p = weights + tap * g.padded_channels() + channel;
      to[t] = RoundToType(compute_type, Element<Vector>::Load(p)) * scale;
    }
  }

  MUSTER_ALWAYS_INLINE ThreeEnd End(int64_t channel) const {
    return {epilogue.shift != nullptr ? Element<Vector>::Load(epilogue.shift + channel) : Vector{},
            ThreeBounds(epilogue.activation)};
  }

  // kEnd: whether there is an addend or an activation. The loop uses local copies, because for the
  // compiler, storing y might change members.
  template <typename Operand, int kStride, int kRows, bool kEnd>
  MUSTER_ALWAYS_INLINE NextBand ComputeRows(const S* image, int64_t sample, int64_t h,
                                            int64_t channel, const Vector (&w)[kThreeTaps],
                                            const ThreeEnd& end, NextBand next) const {
    DepthwiseWindow<Operand, kStride, kRows> window;
    window.Start(g, image, h);
    const int64_t channels = g.channels;
    const int64_t row_stride = g.out_width * channels;
    const int64_t first = (sample * g.out_height + h) * row_stride + channel;
    S* to = y + first;
    const S* addend =
        epilogue.addend != nullptr ? static_cast<const S*>(epilogue.addend) + first : nullptr;
    const auto visit = [&]() __attribute__((always_inline)) {
#pragma clang loop unroll(full)
      for (int r = 0; r < kRows; ++r) {
        Vector sum = end.shift;
#pragma clang loop unroll(full)
        for (int t = 0; t < kThreeTaps; ++t) {
          sum = sum + window.columns[t % 3][r * kStride + t / 3] * w[t];
        }
        if constexpr (kEnd) {
          if (addend != nullptr) sum = sum + Element<Vector>::Load(addend + r * row_stride);
          sum = end.bounds.Cut(sum);
        }
        Element<Vector>::Store(to + r * row_stride, sum);
      }
      to += channels;
      if (kEnd && addend != nullptr) addend += channels;
      next.ReadIn<kRows * kStride * kStride * kVectorBytes<S>, 4>();
    };
    window.Walk(g, visit);
    return next;
  }

  template <typename Operand, int kStride, bool kEnd>
  void RunBand(const DepthwiseBand& band, const S* x) const {
    constexpr int kRows = kWindowRows<kStride>;
    NextBand next = NextBand::After<kStride>(g, band, x, static_cast<const S*>(y));
    for (int64_t block = 0; block < g.blocks<kLanes>(); ++block) {
      const int64_t channel = g.Block<kLanes>(block);
      Vector w[kThreeTaps];
      LoadWeights(channel, w);
      const ThreeEnd end = End(channel);
      for (int64_t sample = band.sample_begin; sample < band.sample_end; ++sample) {
        const S* const image = x + sample * g.height * g.width * g.channels + channel;
        int64_t h = band.begin;
        for (; h + kRows <= band.end; h += kRows) {
          next =
              ComputeRows<Operand, kStride, kRows, kEnd>(image, sample, h, channel, w, end, next);
        }
        for (; h < band.end; ++h) {
          next = ComputeRows<Operand, kStride, 1, kEnd>(image, sample, h, channel, w, end, next);
        }
      }
    }
  }

  template <typename Operand, int kStride, bool kEnd>
  void Run(const S* x) const {
    ForEachBand<kStride, S>(
        g, [&](const DepthwiseBand& band) { RunBand<Operand, kStride, kEnd>(band, x); });
  }
};

// Backward data with stride 2 and padding 1. Input pixels form 2x2 squares, one of each parity,
// which use the outputs (i, j), (i, j + 1), (i + 1, j) and (i + 1, j + 1) with one, two, two and
// four taps.
template <typename Operand>
struct ThreeBackwardStride2 {
  using S = typename Operand::Storage;
  const ThreeGeometry& g;  // geometry of the forward pass
  const float* weights;
  DataType compute_type;
  const S* dy;
  S* dx;

  // at: the square's first pixel; row_stride, channels: element offsets to the pixels below and to
  // the right.
  template <bool kBelow>
  static MUSTER_ALWAYS_INLINE void Square(const Vector (&w)[kThreeTaps], const Vector (&d)[2][2],
                                          bool right, S* at, int64_t row_stride, int64_t channels) {
    Element<Vector>::Store(at, d[0][0] * w[4]);
    if (right) Element<Vector>::Store(at + channels, d[0][0] * w[5] + d[0][1] * w[3]);
    if constexpr (kBelow) {
      Element<Vector>::Store(at + row_stride, d[0][0] * w[7] + d[1][0] * w[1]);
      if (right) {
        const Vector upper = d[0][0] * w[8] + d[0][1] * w[6];
        Element<Vector>::Store(at + row_stride + channels, upper + d[1][0] * w[2] + d[1][1] * w[0]);
      }
    }
  }

  // Computes rows 2 i and, with kBelow, 2 i + 1 of the input.
  template <bool kBelow>
  MUSTER_ALWAYS_INLINE NextBand ComputeRows(int64_t sample, int64_t i, int64_t channel,
                                            const Vector (&w)[kThreeTaps], NextBand next) const {
    const int64_t channels = g.channels;
    const int64_t row_stride = g.width * channels;
    const int64_t out_row_stride = g.out_width * channels;
    const bool inside = i + 1 < g.out_height;
    const S* upper = dy + (sample * g.out_height + i) * out_row_stride + channel;
    const S* lower = inside ? upper + out_row_stride : kZeroPixel<S>;
    const int64_t lower_step = inside ? channels : 0;
    S* at = dx + (sample * g.height + 2 * i) * row_stride + channel;
    Vector d[2][2] = {{Load(upper), {}}, {Load(lower), {}}};
    for (int64_t j = g.out_width - 1; j > 0; --j, at += 2 * channels) {
      upper += channels;
      lower += lower_step;
      d[0][1] = Load(upper);
      d[1][1] = Load(lower);
      Square<kBelow>(w, d, true, at, row_stride, channels);
      d[0][0] = d[0][1];
      d[1][0] = d[1][1];
      next.ReadOut<kVectorBytes<S>, 4>();
    }
    d[0][1] = Vector{};
    d[1][1] = Vector{};
    Square<kBelow>(w, d, g.width % 2 == 0, at, row_stride, channels);
    return next;
  }

  static MUSTER_ALWAYS_INLINE Vector Load(const S* p) {
    return Operand::Round(Operand::template Load<Vector>(p));
  }

  void RunBand(const DepthwiseBand& band) const {
    NextBand next = NextBand::After<2>(g, band, static_cast<const S*>(dx), dy);
    for (int64_t block = 0; block < g.blocks<kLanes>(); ++block) {
      const int64_t channel = g.Block<kLanes>(block);
      Vector w[kThreeTaps];
#pragma clang loop unroll(full)
      for (int t = 0; t < kThreeTaps; ++t) {
        const float* p = weights + t * g.padded_channels() + channel;
        w[t] = RoundToType(compute_type, Element<Vector>::Load(p));
      }
      const int64_t pairs = band.end < g.height / 2 ? band.end : g.height / 2;
      for (int64_t sample = band.sample_begin; sample < band.sample_end; ++sample) {
        for (int64_t i = band.begin; i < pairs; ++i) {
          next = ComputeRows<true>(sample, i, channel, w, next);
        }
        if (pairs < band.end) next = ComputeRows<false>(sample, pairs, channel, w, next);
      }
    }
  }

  void Run() const {
    ForEachBand<2, S>(g, [&](const DepthwiseBand& band) { RunBand(band); });
  }
};

// Adds to `to`, except the first `seen` lanes, which the previous block has added.
MUSTER_ALWAYS_INLINE void AddLanes(Vector sum, int64_t seen, float* to) {
  IntVector lanes;
#pragma clang loop unroll(full)
  for (int i = 0; i < kLanes; ++i) lanes[i] = i;
  const Vector added = lanes < Element<Vector>::SplatInt(seen) ? Vector{} : sum;
  Element<Vector>::Store(to, Element<Vector>::Load(to) + added);
}

// Accumulates to dweights and dbias.
template <typename Operand>
struct ThreeBackwardWeights {
  using S = typename Operand::Storage;
  const ThreeGeometry& g;
  const S* x;
  const S* dy;
  float* dweights;
  float* dbias;

  // Sums of one channel block.
  struct Sums {
    Vector taps[kThreeTaps];
    Vector bias;
  };

  template <int kStride, int kRows>
  MUSTER_ALWAYS_INLINE Sums SumRows(int64_t sample, int64_t h, int64_t channel, Sums sums,
                                    NextBand& next) const {
    DepthwiseWindow<Operand, kStride, kRows> window;
    window.Start(g, x + sample * g.height * g.width * g.channels + channel, h);
    const int64_t row_stride = g.out_width * g.channels;
    const S* at = dy + (sample * g.out_height + h) * row_stride + channel;
    NextBand ahead = next;
    const auto visit = [&]() __attribute__((always_inline)) {
#pragma clang loop unroll(full)
      for (int r = 0; r < kRows; ++r) {
        const Vector d = Operand::Round(Operand::template Load<Vector>(at + r * row_stride));
        sums.bias = sums.bias + d;
#pragma clang loop unroll(full)
        for (int t = 0; t < kThreeTaps; ++t) {
          sums.taps[t] = sums.taps[t] + window.columns[t % 3][r * kStride + t / 3] * d;
        }
      }
      at += g.channels;
      ahead.ReadIn<kRows * kStride * kStride * kVectorBytes<S>, 4>();
      ahead.ReadOut<kRows * kVectorBytes<S>, 4>();
    };
    window.Walk(g, visit);
    next = ahead;
    return sums;
  }

  MUSTER_ALWAYS_INLINE void Add(const Sums& sums, int64_t channel, int64_t seen) const {
#pragma clang loop unroll(full)
    for (int t = 0; t < kThreeTaps; ++t) {
      AddLanes(sums.taps[t], seen, dweights + t * g.padded_channels() + channel);
    }
    if (dbias != nullptr) AddLanes(sums.bias, seen, dbias + channel);
  }

  template <int kStride>
  void RunBand(const DepthwiseBand& band) const {
    constexpr int kRows = kWindowRows<kStride>;
    NextBand next = NextBand::After<kStride>(g, band, x, dy);
    for (int64_t block = 0; block < g.blocks<kLanes>(); ++block) {
      const int64_t channel = g.Block<kLanes>(block);
      Sums sums = {};
      for (int64_t sample = band.sample_begin; sample < band.sample_end; ++sample) {
        int64_t h = band.begin;
        for (; h + kRows <= band.end; h += kRows) {
          sums = SumRows<kStride, kRows>(sample, h, channel, sums, next);
        }
        for (; h < band.end; ++h) sums = SumRows<kStride, 1>(sample, h, channel, sums, next);
      }
      Add(sums, channel, block * kLanes - channel);
    }
  }

  template <int kStride>
  void Run() const {
    ForEachBand<kStride, S>(g, [&](const DepthwiseBand& band) { RunBand<kStride>(band); });
  }
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_THREE_BODY_H_
