// Packs weights for the tile convolution; see kernels/cpu/convolution/tile/product.h. Compiled once
// per instruction set.
//
// A packed panel is [tap index][step of its channels][width of the panel] with elements of float32
// or pairs of bfloat16. For float32 forward, the weights already have this layout.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PACK_BODY_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PACK_BODY_H_

#include <cstdint>
#include <utility>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#include "kernels/cpu/convolution/tile/product.h"
#include "kernels/cpu/vector/vector.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Interleaves a0 b0 a1 b1 ..., of the first or the second halves.
template <int kFirst, int... kLane>
MUSTER_ALWAYS_INLINE Vector Interleave(Vector a, Vector b,
                                       std::integer_sequence<int, kLane...> lanes) {
  return __builtin_shufflevector(a, b, (kLane % 2 * kLanes + kFirst + kLane / 2)...);
}

// Each round is a perfect shuffle of the rows; log2(kLanes) rounds exchange rows and lanes.
MUSTER_ALWAYS_INLINE void Transpose(Vector (&rows)[kLanes]) {
  constexpr auto kSequence = std::make_integer_sequence<int, kLanes>();
#pragma clang loop unroll(full)
  for (int round = 1; round < kLanes; round *= 2) {
    Vector shuffled[kLanes];
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes / 2; ++i) {
      shuffled[2 * i] = Interleave<0>(rows[i], rows[i + kLanes / 2], kSequence);
      shuffled[2 * i + 1] = Interleave<kLanes / 2>(rows[i], rows[i + kLanes / 2], kSequence);
    }
#pragma clang loop unroll(full)
    for (int i = 0; i < kLanes; ++i) rows[i] = shuffled[i];
  }
}

// Definition of a step and of the lanes it is loaded from, for each type of product.
struct FloatSteps {
  static constexpr int kChannels = 1;  // per step
  static Vector OfRow(const float* p, int64_t width) { return Element<Vector>::Load(p); }
  static Vector OfRows(const float* p, const float* next) { return Element<Vector>::Load(p); }
};

#if defined(__AVX512BF16__)
struct Bfloat16Steps {
  static constexpr int kChannels = 2;
  // Two vectors of a row; the second is zero if the row has only one.
  static Vector OfRow(const float* p, int64_t width) {
    const Vector second = width > kLanes ? Element<Vector>::Load(p + kLanes) : Vector{};
    return reinterpret_cast<Vector>(_mm512_cvtne2ps_pbh(
        reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(Element<Vector>::Load(p))));
  }
  // Lane i pairs elements i of both rows; a null row is zeros.
  static Vector OfRows(const float* p, const float* next) {
    const __m512i low = Widened(p);
    if (next == nullptr) return reinterpret_cast<Vector>(low);
    return reinterpret_cast<Vector>(_mm512_or_si512(low, _mm512_slli_epi32(Widened(next), 16)));
  }

 private:
  static __m512i Widened(const float* p) {
    const __m256bh rounded = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(Element<Vector>::Load(p)));
    return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(rounded));
  }
};
#endif

// Packs panel `panel` of the convolution's own output channels.
template <typename Steps>
inline void PackForward(const TilePlan& plan, const TilePanels& from, const float* weights,
                        int64_t panel, float* packed) {
  const int64_t width = from.width(panel);
  const int64_t channels = plan.source_channels;
  for (int64_t place = 0; place < plan.tap_count; ++place) {
    if (plan.taps[place] < 0) continue;
    const float* p = weights + from.offset(panel, plan.taps[place] * channels, 0);
    float* to = packed + place * plan.steps() * width;
    for (int64_t c = 0; c < channels; c += Steps::kChannels) {
      for (int64_t i = 0; i < width; i += kLanes) {
        const float* const row = p + c * width + i;
        const float* const next = c + 1 < channels ? row + width : nullptr;
        Element<Vector>::Store(to + i, Steps::OfRows(row, next));
      }
      to += width;
    }
  }
}

// Packs kLanes target channels from `first` on, into the lanes with the same indices.
template <typename Steps>
inline void PackTransposedLanes(const TilePlan& plan, const TilePanels& from, const float* weights,
                                int64_t first, float* packed, int64_t packed_width) {
  constexpr int64_t kLoaded = kLanes * Steps::kChannels;  // source channels per iteration
  const int64_t left = plan.target_channels - first;
  for (int64_t place = 0; place < plan.tap_count; ++place) {
    if (plan.taps[place] < 0) continue;
    const int64_t row = plan.taps[place] * plan.target_channels + first;
    for (int64_t source = 0; source < plan.source_channels; source += kLoaded) {
      const int64_t panel = source / from.full_width();
      const int64_t in_panel = source - panel * from.full_width();
      const int64_t width = from.width(panel);
      const float* const p = weights + from.offset(panel, row, in_panel);
      // Prefetches the same rows of the next panel, possibly beyond the last: the hardware
      // prefetcher does not look that far.
      const float* const next = p + from.full_width() * from.depth;
      for (int64_t i = 0; i < kLanes * width; i += 16) __builtin_prefetch(next + i);
      Vector rows[kLanes];
#pragma clang loop unroll(full)
      for (int i = 0; i < kLanes; ++i) {
        rows[i] = i < left ? Steps::OfRow(p + i * width, width - in_panel) : Vector{};
      }
      Transpose(rows);
      const int64_t step = source / Steps::kChannels;
      const int64_t steps = plan.steps() - step < kLanes ? plan.steps() - step : kLanes;
      float* const to = packed + (place * plan.steps() + step) * packed_width;
      for (int64_t i = 0; i < steps; ++i) Element<Vector>::Store(to + i * packed_width, rows[i]);
    }
  }
}

// Packs panel `panel` of the product's target channels.
template <typename Steps>
inline void PackPanel(const TilePlan& plan, const float* weights, int64_t panel, float* packed) {
  const int64_t sums =
      plan.tap_count * (plan.transposed ? plan.target_channels : plan.source_channels);
  const TilePanels from = {
      .lanes = kLanes,
      .depth = sums,
      .out_channels = plan.transposed ? plan.source_channels : plan.target_channels};
  if (!plan.transposed) return PackForward<Steps>(plan, from, weights, panel, packed);
  const TilePanels to = {.lanes = kLanes, .out_channels = plan.target_channels};
  const int64_t width = to.width(panel);
  for (int64_t i = 0; i < width; i += kLanes) {
    PackTransposedLanes<Steps>(plan, from, weights, panel * to.full_width() + i, packed + i, width);
  }
}

template <typename T>
inline void PadChannels(const T* x, int64_t pixels, int64_t channels, Bfloat16* y) {
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t c = 0; c < channels; ++c) {
      Element<float>::Store(y + c, Element<float>::Load(x + c));
    }
    y[channels] = {};
    x += channels;
    y += channels + 1;
  }
}

// Specialised for the numbers of channels of colour and grey images.
template <typename T>
inline void PadChannelsOf(const void* x, int64_t pixels, int64_t channels, void* y) {
  const auto* const from = static_cast<const T*>(x);
  auto* const to = static_cast<Bfloat16*>(y);
  if (channels == 3) return PadChannels(from, pixels, 3, to);
  if (channels == 1) return PadChannels(from, pixels, 1, to);
  PadChannels(from, pixels, channels, to);
}

inline void TilePadChannels(DataType from, const void* x, int64_t pixels, int64_t channels,
                            void* y) {
  switch (from) {
    case DataType::kBfloat16:
      return PadChannelsOf<Bfloat16>(x, pixels, channels, y);
    case DataType::kFloat16:
      return PadChannelsOf<Float16>(x, pixels, channels, y);
    default:  // kFloat32
      return PadChannelsOf<float>(x, pixels, channels, y);
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PACK_BODY_H_
