// Operand types of dot_body.h: 32 channels at a time, as floats or as pairs of bfloat16. Compiled
// for the instruction set with bfloat16 dot products.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_DOT_OPERAND_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_DOT_OPERAND_H_

#if defined(__AVX512BF16__)

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/convolution/depthwise/bands.h"
#include "kernels/cpu/convolution/depthwise/operand.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/data_type.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Channels per block.
inline constexpr int kDotLanes = 2 * kLanes;

// 32 channels of bfloat16, in order.
using DotPixel = __m512i;

// A block's channels as floats, in the order that interleaving produces: of each eight, the first
// four in one vector, the others in the other.
struct DotFloats {
  Vector half[2];

  static MUSTER_ALWAYS_INLINE DotFloats Load(const float* p) {
    const Vector a = Element<Vector>::Load(p);
    const Vector b = Element<Vector>::Load(p + kLanes);
    return {
        {__builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),
         __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30,
                                 31)}};
  }

  // The channels in canonical order.
  MUSTER_ALWAYS_INLINE Vector First() const {
    return __builtin_shufflevector(half[0], half[1], 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21,
                                   22, 23);
  }
  MUSTER_ALWAYS_INLINE Vector Second() const {
    return __builtin_shufflevector(half[0], half[1], 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15,
                                   28, 29, 30, 31);
  }

  MUSTER_ALWAYS_INLINE void Store(Bfloat16* p) const {
    const auto rounded = __builtin_bit_cast(DotPixel, _mm512_cvtne2ps_pbh(half[1], half[0]));
    const __m512i order = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);  // groups of four channels
    _mm512_storeu_si512(p, _mm512_permutexvar_epi64(order, rounded));
  }
};

// A pair of bfloat16 per channel, in the order of DotFloats.
struct DotPairs {
  __m512i half[2];
};

MUSTER_ALWAYS_INLINE DotPixel LoadDot(const Bfloat16* p) { return _mm512_loadu_si512(p); }

MUSTER_ALWAYS_INLINE DotPairs Interleave(DotPixel first, DotPixel second) {
  return {{_mm512_unpacklo_epi16(first, second), _mm512_unpackhi_epi16(first, second)}};
}

// The upper half of a float is its bfloat16.
MUSTER_ALWAYS_INLINE DotFloats Widen(DotPixel pixel) {
  return __builtin_bit_cast(DotFloats, Interleave(_mm512_setzero_si512(), pixel));
}

MUSTER_ALWAYS_INLINE void AddProducts(const DotPairs& a, const DotPairs& b, DotFloats& sum) {
#pragma clang loop unroll(full)
  for (int i = 0; i < 2; ++i) {
    sum.half[i] = _mm512_dpbf16_ps(sum.half[i], __builtin_bit_cast(__m512bh, a.half[i]),
                                   __builtin_bit_cast(__m512bh, b.half[i]));
  }
}
MUSTER_ALWAYS_INLINE void AddProducts(const DotFloats& a, const DotFloats& b, DotFloats& sum) {
#pragma clang loop unroll(full)
  for (int i = 0; i < 2; ++i) sum.half[i] = sum.half[i] + a.half[i] * b.half[i];
}

// Weights of one block of channels.
class DotWeights {
 public:
  MUSTER_ALWAYS_INLINE DotWeights(const ThreeGeometry& g, const float* weights, int64_t channel)
      : at_(weights + channel), step_(g.padded_channels()) {}

  // The weights of a tap as floats, rounded to bfloat16.
  MUSTER_ALWAYS_INLINE DotFloats One(int tap) const {
    const DotFloats read = DotFloats::Load(at_ + tap * step_);
    return {{RoundToType(DataType::kBfloat16, read.half[0]),
             RoundToType(DataType::kBfloat16, read.half[1])}};
  }
  MUSTER_ALWAYS_INLINE DotPairs Pair(int first, int second) const {
    const DotFloats low = One(first), high = One(second);
    DotPairs pairs;
#pragma clang loop unroll(full)
    for (int i = 0; i < 2; ++i) {
      pairs.half[i] =
          _mm512_or_si512(_mm512_srli_epi32(__builtin_bit_cast(__m512i, low.half[i]), 16),
                          __builtin_bit_cast(__m512i, high.half[i]));
    }
    return pairs;
  }

 private:
  const float* const at_;
  const int64_t step_;
};

inline constexpr Bfloat16 kZeroDotPixel[kDotLanes] = {};

// Moves along a row of an image, or stays at a pixel of zeros.
struct DotRow {
  const Bfloat16* at;
  int64_t step;

  // image: [rows, width, channels] at the block of channels.
  static MUSTER_ALWAYS_INLINE DotRow Of(const Bfloat16* image, int64_t row, int64_t rows,
                                        int64_t width, int64_t channels) {
    if (row < 0 || row >= rows) return {kZeroDotPixel, 0};
    return {image + row * width * channels, channels};
  }

  MUSTER_ALWAYS_INLINE DotPixel Next() {
    const DotPixel pixel = LoadDot(at);
    at += step;
    return pixel;
  }
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // __AVX512BF16__

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_DOT_OPERAND_H_
