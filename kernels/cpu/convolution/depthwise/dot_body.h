// Depthwise convolution of bfloat16 with a 3x3 kernel, stride 1 or 2 and a padding of 1, with the
// instruction that multiplies two pairs of bfloat16 and adds both products to a float; for at least
// 32 channels. Compiled for the instruction set that has it.
//
// Pairs consist of vertically adjacent pixels, interleaved when they are loaded, 32 channels at a
// time, which costs no more than widening them. The kernel's third row, and an output that uses
// only one of two rows, is multiplied in float: a pair with a zero weight would turn infinite
// values of unused pixels into NaN.
//
// Each column of input is loaded once per row of windows and added to the sums of the three windows
// that contain it; weights and sums fill the registers. A channel block is twice as wide as in
// three_body.h.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_DOT_BODY_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_DOT_BODY_H_

#if defined(__AVX512BF16__)

#include <cstdint>

#include "kernels/cpu/convolution/depthwise/bands.h"
#include "kernels/cpu/convolution/depthwise/dot_operand.h"
#include "kernels/cpu/convolution/depthwise/three_body.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/depthwise_convolution.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Bytes of input and output of a band, usually two rows. Longer bands are better if most of the
// memory traffic is writes.
template <int kStride>
inline constexpr int64_t kDotBandBytes = (32 << 10) * kStride;
inline constexpr int64_t kDotWritingBandBytes = 112 << 10;

// Accumulates the sums of three horizontally adjacent windows as the columns pass.
struct DotForward {
  const ThreeGeometry& g;
  const float* weights;
  bool flipped;  // the kernel rotated by 180 degrees, for backward data
  const Epilogue& epilogue;
  Bfloat16* y;

  // Weights of a channel block, by kernel column.
  struct Weights {
    DotPairs upper[3];  // kernel rows 0 and 1
    DotFloats lower[3];
  };
  struct End {
    DotFloats scale, shift;
    ThreeBounds bounds;
  };

  MUSTER_ALWAYS_INLINE Weights LoadWeights(int64_t channel) const {
    const DotWeights from(g, weights, channel);
    Weights to;
#pragma clang loop unroll(full)
    for (int s = 0; s < 3; ++s) {
      to.upper[s] = flipped ? from.Pair(8 - s, 5 - s) : from.Pair(s, 3 + s);
      to.lower[s] = from.One(flipped ? 2 - s : 6 + s);
    }
    return to;
  }

  MUSTER_ALWAYS_INLINE End LoadEnd(int64_t channel) const {
    const Vector one = Element<Vector>::Splat(1);
    return {epilogue.scale != nullptr ? DotFloats::Load(epilogue.scale + channel)
                                      : DotFloats{{one, one}},
            epilogue.shift != nullptr ? DotFloats::Load(epilogue.shift + channel) : DotFloats{},
            ThreeBounds(epilogue.activation)};
  }

  // kEnd: whether there is an epilogue.
  template <int kStride, bool kEnd>
  MUSTER_ALWAYS_INLINE NextBand ComputeRow(const Bfloat16* image, int64_t sample, int64_t h,
                                           int64_t channel, const Weights& w, const End& end,
                                           NextBand next) const {
    const int64_t channels = g.channels;
    const int64_t first = (sample * g.out_height + h) * g.out_width * channels + channel;
    DotRow rows[3];
#pragma clang loop unroll(full)
    for (int r = 0; r < 3; ++r) {
      rows[r] = DotRow::Of(image, h * kStride - 1 + r, g.height, g.width, channels);
    }
    Bfloat16* to = y + first;
    const Bfloat16* addend = epilogue.addend != nullptr
                                 ? static_cast<const Bfloat16*>(epilogue.addend) + first
                                 : nullptr;
    DotPairs upper;
    DotFloats lower;
    const auto load = [&]() __attribute__((always_inline)) {
      const DotPixel a = rows[0].Next(), b = rows[1].Next(), c = rows[2].Next();
      upper = Interleave(a, b);
      lower = Widen(c);
      next.ReadIn<64 * kStride, 8>();
    };
    // Adds the column as column s of the window.
    const auto add = [&](int s, DotFloats& sum) __attribute__((always_inline)) {
      AddProducts(upper, w.upper[s], sum);
      AddProducts(lower, w.lower[s], sum);
    };
    const auto finish = [&](DotFloats sum) __attribute__((always_inline)) {
      if constexpr (kEnd) sum = Finish(sum, end, addend);
      sum.Store(to);
      to += channels;
      if (kEnd && addend != nullptr) addend += channels;
      next.WriteOut<64>();
    };
    DotFloats middle = {}, right = {};
    if constexpr (kStride == 1) {
      load();
      add(1, middle);
      add(0, right);
      for (int64_t column = 1; column < g.width; ++column) {
        DotFloats left = middle;
        middle = right;
        right = DotFloats{};
        load();
        add(2, left);
        add(1, middle);
        add(0, right);
        finish(left);
      }
      finish(middle);
    } else {
      for (int64_t pair = g.width / 2; pair > 0; --pair) {
        middle = right;
        right = DotFloats{};
        load();
        add(1, middle);
        load();
        add(2, middle);
        add(0, right);
        finish(middle);
      }
      if (g.width % 2 != 0) {
        load();
        add(1, right);
        finish(right);
      }
    }
    return next;
  }

  // addend: at the pixel, or null.
  static MUSTER_ALWAYS_INLINE DotFloats Finish(DotFloats sum, const End& end,
                                               const Bfloat16* addend) {
    DotFloats added = end.shift;
    AddProducts(sum, end.scale, added);
    const DotFloats more = addend != nullptr ? Widen(LoadDot(addend)) : DotFloats{};
#pragma clang loop unroll(full)
    for (int i = 0; i < 2; ++i) {
      added.half[i] = end.bounds.Cut(added.half[i] + more.half[i]);
    }
    return added;
  }

  template <int kStride, bool kEnd>
  void Run(const Bfloat16* x) const {
    ForEachBand<kStride, Bfloat16, kDotBandBytes<kStride>>(g, [&](const DepthwiseBand& band) {
      NextBand next = NextBand::After<kStride>(g, band, x, static_cast<const Bfloat16*>(y));
      for (int64_t block = 0; block < g.blocks<kDotLanes>(); ++block) {
        const int64_t channel = g.Block<kDotLanes>(block);
        const Weights w = LoadWeights(channel);
        const End end = LoadEnd(channel);
        for (int64_t sample = band.sample_begin; sample < band.sample_end; ++sample) {
          const Bfloat16* const image = x + sample * g.height * g.width * g.channels + channel;
          for (int64_t h = band.begin; h < band.end; ++h) {
            next = ComputeRow<kStride, kEnd>(image, sample, h, channel, w, end, next);
          }
        }
      }
    });
  }
};

// Backward data with stride 2; see ThreeBackwardStride2.
struct DotBackwardStride2 {
  const ThreeGeometry& g;  // geometry of the forward pass
  const float* weights;
  const Bfloat16* dy;
  Bfloat16* dx;

  // Weights of a channel block; the digits are tap indices.
  struct Weights {
    DotFloats w4, w5, w3;
    DotPairs w71, w82, w60;
  };

  // A column of dy: the pair of its two rows, and the upper one.
  struct Column {
    DotPairs both;
    DotFloats upper;
  };

  // Computes rows 2 i and, with kBelow, 2 i + 1 of the input.
  template <bool kBelow>
  MUSTER_ALWAYS_INLINE NextBand ComputeRows(int64_t sample, int64_t i, int64_t channel,
                                            const Weights& w, NextBand next) const {
    const int64_t channels = g.channels;
    const int64_t row_stride = g.width * channels;
    const Bfloat16* const image = dy + sample * g.out_height * g.out_width * channels + channel;
    DotRow upper = DotRow::Of(image, i, g.out_height, g.out_width, channels);
    DotRow lower = DotRow::Of(image, i + 1, g.out_height, g.out_width, channels);
    Bfloat16* at = dx + (sample * g.height + 2 * i) * row_stride + channel;
    const auto load = [&]() __attribute__((always_inline)) {
      const DotPixel a = upper.Next(), b = lower.Next();
      next.ReadOut<64, 8>();
      return Column{Interleave(a, b), Widen(a)};
    };
    const auto left = [&](const Column& d) __attribute__((always_inline)) {
      DotFloats above = {}, below = {};
      AddProducts(d.upper, w.w4, above);
      above.Store(at);
      next.WriteIn<128>();
      if constexpr (!kBelow) return;
      AddProducts(d.both, w.w71, below);
      below.Store(at + row_stride);
    };
    const auto right = [&](const Column& d, const Column& e) __attribute__((always_inline)) {
      DotFloats above = {}, below = {};
      AddProducts(d.upper, w.w5, above);
      AddProducts(e.upper, w.w3, above);
      above.Store(at + channels);
      next.WriteIn<128>();
      if constexpr (!kBelow) return;
      AddProducts(d.both, w.w82, below);
      AddProducts(e.both, w.w60, below);
      below.Store(at + row_stride + channels);
    };
    Column d = load();
    for (int64_t j = g.out_width - 1; j > 0; --j, at += 2 * channels) {
      const Column e = load();
      left(d);
      right(d, e);
      d = e;
    }
    left(d);
    if (g.width % 2 == 0) right(d, Column{});
    return next;
  }

  void Run() const {
    ForEachBand<2, Bfloat16, kDotWritingBandBytes>(g, [&](const DepthwiseBand& band) {
      NextBand next = NextBand::After<2>(g, band, static_cast<const Bfloat16*>(dx), dy);
      for (int64_t block = 0; block < g.blocks<kDotLanes>(); ++block) {
        const int64_t channel = g.Block<kDotLanes>(block);
        const DotWeights from(g, weights, channel);
        const Weights w = {from.One(4),     from.One(5),     from.One(3),
                           from.Pair(7, 1), from.Pair(8, 2), from.Pair(6, 0)};
        const int64_t pairs = band.end < g.height / 2 ? band.end : g.height / 2;
        for (int64_t sample = band.sample_begin; sample < band.sample_end; ++sample) {
          for (int64_t i = band.begin; i < pairs; ++i) {
            next = ComputeRows<true>(sample, i, channel, w, next);
          }
          if (pairs < band.end) next = ComputeRows<false>(sample, pairs, channel, w, next);
        }
      }
    });
  }
};

// Accumulates to dweights and dbias. Pairs are of windows in two rows.
struct DotBackwardWeights {
  const ThreeGeometry& g;
  const Bfloat16* x;
  const Bfloat16* dy;
  float* dweights;
  float* dbias;

  // Sums of one channel block.
  struct Sums {
    DotFloats taps[kThreeTaps];
    DotFloats bias;
  };

  // Sums rows h and h + 1 of windows; a row that does not exist is zero.
  template <int kStride>
  MUSTER_ALWAYS_INLINE Sums SumRows(int64_t sample, int64_t h, int64_t channel, Sums sums,
                                    NextBand& next) const {
    constexpr int kInputs = kStride + 3;
    const int64_t channels = g.channels;
    const Bfloat16* const in = x + sample * g.height * g.width * channels + channel;
    const Bfloat16* const out = dy + sample * g.out_height * g.out_width * channels + channel;
    DotRow rows[kInputs];
#pragma clang loop unroll(full)
    for (int i = 0; i < kInputs; ++i) {
      rows[i] = DotRow::Of(in, h * kStride - 1 + i, g.height, g.width, channels);
    }
    DotRow upper = DotRow::Of(out, h, g.out_height, g.out_width, channels);
    DotRow lower = DotRow::Of(out, h + 1, g.out_height, g.out_width, channels);
    NextBand ahead = next;
    const DotPairs ones = {{_mm512_set1_epi16(0x3f80), _mm512_set1_epi16(0x3f80)}};
    const auto load_windows = [&]() __attribute__((always_inline)) {
      const DotPixel a = upper.Next(), b = lower.Next();
      const DotPairs d = Interleave(a, b);
      AddProducts(d, ones, sums.bias);
      ahead.ReadOut<128, 8>();
      return d;
    };
    // Calls visit(pairs, tap) with the next column of input and each row's tap of column 0.
    const auto column = [&](const auto& visit) __attribute__((always_inline)) {
      DotPixel pixels[kInputs];
#pragma clang loop unroll(full)
      for (int i = 0; i < kInputs; ++i) pixels[i] = rows[i].Next();
#pragma clang loop unroll(full)
      for (int r = 0; r < 3; ++r) visit(Interleave(pixels[r], pixels[r + kStride]), 3 * r);
      ahead.ReadIn<128 * kStride, 8>();
    };
    DotPairs middle = load_windows();
    if constexpr (kStride == 1) {
      DotPairs left = {};
      const auto step = [&](const DotPairs& right) __attribute__((always_inline)) {
        column([&](const DotPairs& pairs, int tap) __attribute__((always_inline)) {
          AddProducts(pairs, right, sums.taps[tap]);
          AddProducts(pairs, middle, sums.taps[tap + 1]);
          AddProducts(pairs, left, sums.taps[tap + 2]);
        });
        left = middle;
        middle = right;
      };
      for (int64_t w = 1; w < g.out_width; ++w) step(load_windows());
      step(DotPairs{});
    } else {
      const auto even = [&](const DotPairs& pairs, int tap) __attribute__((always_inline)) {
        AddProducts(pairs, middle, sums.taps[tap + 1]);
      };
      for (int64_t w = 1; w < g.out_width; ++w) {
        const DotPairs right = load_windows();
        column(even);
        column([&](const DotPairs& pairs, int tap) __attribute__((always_inline)) {
          AddProducts(pairs, right, sums.taps[tap]);
          AddProducts(pairs, middle, sums.taps[tap + 2]);
        });
        middle = right;
      }
      column(even);
      if (g.width % 2 == 0) {
        column([&](const DotPairs& pairs, int tap) __attribute__((always_inline)) {
          AddProducts(pairs, middle, sums.taps[tap + 2]);
        });
      }
    }
    next = ahead;
    return sums;
  }

  static MUSTER_ALWAYS_INLINE void Add(const DotFloats& sum, int64_t seen, float* to) {
    AddLanes(sum.First(), seen, to);
    AddLanes(sum.Second(), seen - kLanes, to + kLanes);
  }

  template <int kStride>
  void Run() const {
    ForEachBand<kStride, Bfloat16, kDotBandBytes<kStride>>(g, [&](const DepthwiseBand& band) {
      NextBand next = NextBand::After<kStride>(g, band, x, dy);
      for (int64_t block = 0; block < g.blocks<kDotLanes>(); ++block) {
        const int64_t channel = g.Block<kDotLanes>(block);
        const int64_t seen = block * kDotLanes - channel;
        Sums sums = {};
        for (int64_t sample = band.sample_begin; sample < band.sample_end; ++sample) {
          for (int64_t h = band.begin; h < band.end; h += 2) {
            sums = SumRows<kStride>(sample, h, channel, sums, next);
          }
        }
#pragma clang loop unroll(full)
        for (int t = 0; t < kThreeTaps; ++t) {
          Add(sums.taps[t], seen, dweights + t * g.padded_channels() + channel);
        }
        if (dbias != nullptr) Add(sums.bias, seen, dbias + channel);
      }
    });
  }
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // __AVX512BF16__

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_DOT_BODY_H_
