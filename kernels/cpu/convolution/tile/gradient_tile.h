// Inner loops of kernels/cpu/convolution/tile/gradient_body.h: sums of products in registers, and
// the copies that lay out operands for them. Compiled once per instruction set.
//
// Operands are elements of 32 bits: a float, or the bfloat16 values at the same position of two
// samples, whose products one instruction accumulates.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_TILE_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_TILE_H_

#include <cstdint>

#include "kernels/cpu/vector/vector.h"
#include "kernels/data_type.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Maximum number of input channels per tile: each needs two vectors of sums, in addition to two
// vectors of dy and a broadcast value.
inline constexpr int kMaxTileChannels = kRegisters == 32 ? 14 : 6;

// Offsets of a pixel of dy and of the corresponding pixel of x, in elements.
struct PixelOffsets {
  int32_t x;
  int32_t dy;
};

// Broadcasts the element at p to all lanes.
MUSTER_ALWAYS_INLINE Vector Broadcast(const float* p) {
  int32_t bits;
  __builtin_memcpy(&bits, p, sizeof(bits));
  return reinterpret_cast<Vector>(IntVector{} + bits);
}

// Moves up to kLanes elements without reading or writing beyond the last.
class PartOfVector {
 public:
#if defined(__AVX512F__)
  explicit PartOfVector(int64_t count) : mask_(static_cast<__mmask16>((1u << count) - 1)) {}
  Vector Load(const float* p) const { return _mm512_maskz_loadu_ps(mask_, p); }
  void Store(float* p, Vector value) const { _mm512_mask_storeu_ps(p, mask_, value); }
#if defined(__AVX512BF16__)
  // Loads 16-bit elements widened to 32 bits.
  __m512i LoadHalves(const Bfloat16* p) const {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask_, p));
  }
#endif

 private:
  __mmask16 mask_;
#else
  explicit PartOfVector(int64_t count) : count_(count) {}
  Vector Load(const float* p) const {
    if (count_ == kLanes) return Element<Vector>::Load(p);
    Vector value{};
    for (int64_t i = 0; i < count_; ++i) value[i] = p[i];
    return value;
  }
  void Store(float* p, Vector value) const {
    if (count_ == kLanes) return Element<Vector>::Store(p, value);
    for (int64_t i = 0; i < count_; ++i) p[i] = value[i];
  }

 private:
  int64_t count_;
#endif
};

struct FloatOperand {
  using Stored = float;
  static constexpr int kSamples = 1;  // samples per element

  // Source of elements of a row, one per sample.
  struct Row {
    const float* sample;

    Row operator+(int64_t elements) const { return {sample + elements}; }
    Vector Load(const PartOfVector& part) const { return part.Load(sample); }
  };
  static Row RowAt(const void* array, int64_t offset, int64_t sample_stride,
                   bool last_sample_missing) {
    return {static_cast<const float*>(array) + offset};
  }

  MUSTER_ALWAYS_INLINE static Vector AddProduct(Vector sum, Vector a, Vector b) {
    return sum + a * b;
  }
  static Vector One() { return Vector{} + 1.0f; }
};

#if defined(__AVX512BF16__)
struct Bfloat16Pairs {
  using Stored = Bfloat16;
  static constexpr int kSamples = 2;

  struct Row {
    const Bfloat16* sample;
    const Bfloat16* next_sample;  // null after the last sample: zeros

    Row operator+(int64_t elements) const {
      return {sample + elements, next_sample == nullptr ? nullptr : next_sample + elements};
    }
    Vector Load(const PartOfVector& part) const {
      __m512i pairs = part.LoadHalves(sample);
      if (next_sample != nullptr) {
        pairs = _mm512_or_si512(pairs, _mm512_slli_epi32(part.LoadHalves(next_sample), 16));
      }
      return _mm512_castsi512_ps(pairs);
    }
  };
  static Row RowAt(const void* array, int64_t offset, int64_t sample_stride,
                   bool last_sample_missing) {
    const auto* const sample = static_cast<const Bfloat16*>(array) + offset;
    return {sample, last_sample_missing ? nullptr : sample + sample_stride};
  }

  MUSTER_ALWAYS_INLINE static Vector AddProduct(Vector sum, Vector a, Vector b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  }
  static Vector One() { return _mm512_castsi512_ps(_mm512_set1_epi32(0x3f803f80)); }
};
#endif

// Copies `pixels` runs of `channels` elements, `from_stride` stored elements apart, to runs of
// `padded_channels` that end in zeros.
template <typename Operand>
inline void CopyPixels(typename Operand::Row from, int64_t from_stride, int64_t pixels,
                       int64_t channels, int64_t padded_channels, int64_t to_stride, float* to) {
  const auto lanes_from = [](int64_t first, int64_t end) {
    return end <= first ? 0 : end - first < kLanes ? end - first : kLanes;
  };
  for (int64_t c = 0; c < padded_channels; c += kLanes) {
    const PartOfVector loaded(lanes_from(c, channels));
    const PartOfVector stored(lanes_from(c, padded_channels));
    for (int64_t p = 0; p < pixels; ++p) {
      stored.Store(to + p * to_stride + c, (from + p * from_stride + c).Load(loaded));
    }
  }
}

// Prefetches memory of the next block into the second-level cache while the current block is
// summed; otherwise, the copies that lay out operands would wait for it.
class Ahead {
 public:
  struct CacheLines {
    const char* first;
    int64_t step;  // in bytes
  };

  void Add(const void* begin, int64_t bytes) {
    if (bytes > left_) bytes = left_;
    left_ -= bytes;
    if (bytes > 0) segments_[count_++] = {static_cast<const char*>(begin), bytes};
  }
  // Returns about `count` cache lines to prefetch one by one, or the same one repeatedly if none
  // are left.
  CacheLines Take(int64_t count) {
    if (current_ == count_) return {last_, 0};
    Segment& segment = segments_[current_];
    const CacheLines taken = {segment.begin, kCacheLineBytes};
    segment.begin += count * kCacheLineBytes;
    segment.bytes -= count * kCacheLineBytes;
    if (segment.bytes <= 0) ++current_;
    last_ = taken.first;
    return taken;
  }

 private:
  static constexpr int64_t kCacheLineBytes = 64;
  static constexpr int64_t kMost = 256 << 10;  // in addition to this block's operands
  struct Segment {
    const char* begin;
    int64_t bytes;
  };
  Segment segments_[2 * 2];  // segments of x and of dy, in two samples
  int64_t left_ = kMost;
  int count_ = 0;
  int current_ = 0;
  const char* last_ = nullptr;
};

// dweights, kChannels rows of `width` elements: kVectors vectors of each, the sums over `count`
// pixels of x's channels times dy's, are added or written.
//
// The channels are those of kRows rows of x, x_row_stride elements apart. The cache lines to
// prefetch are passed as two numbers: a struct on the stack would be stored by halves and loaded as
// a whole, which waits for all earlier stores, including the last tile's stores to dweights.
template <typename Operand, int kVectors, int kChannels, int kRows = 1>
void SumTile(const PixelOffsets* pixels, int64_t count, const float* x, int64_t x_row_stride,
             const float* dy, int64_t width, bool add, const char* ahead, int64_t ahead_step,
             float* dweights) {
  Vector sums[kChannels][kVectors];
#pragma clang loop unroll(full)
  for (int i = 0; i < kChannels; ++i) {
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) sums[i][v] = Vector{};
  }
#pragma clang loop unroll(disable)
  for (const PixelOffsets* const end = pixels + count; pixels != end; ++pixels) {
    __builtin_prefetch(ahead, 0, 2);
    ahead += ahead_step;
    const float* const from = x + pixels->x;
    const float* const by = dy + pixels->dy;
    Vector gradient[kVectors];
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) gradient[v] = Element<Vector>::Load(by + v * kLanes);
#pragma clang loop unroll(full)
    for (int i = 0; i < kChannels; ++i) {
      constexpr int kRowChannels = kChannels / kRows;
      const Vector value = Broadcast(from + i / kRowChannels * x_row_stride + i % kRowChannels);
#pragma clang loop unroll(full)
      for (int v = 0; v < kVectors; ++v) {
        sums[i][v] = Operand::AddProduct(sums[i][v], value, gradient[v]);
      }
    }
  }
#pragma clang loop unroll(full)
  for (int i = 0; i < kChannels; ++i) {
#pragma clang loop unroll(full)
    for (int v = 0; v < kVectors; ++v) {
      float* const to = dweights + i * width + v * kLanes;
      Element<Vector>::Store(to, add ? Element<Vector>::Load(to) + sums[i][v] : sums[i][v]);
    }
  }
}

using SumTileFunction = decltype(&SumTile<FloatOperand, 1, 1>);

template <typename Operand, int kVectors, int kChannels = kMaxTileChannels>
inline SumTileFunction SumTileOf(int64_t channels) {
  if constexpr (kChannels > 1) {
    if (channels < kChannels) return SumTileOf<Operand, kVectors, kChannels - 1>(channels);
  }
  return &SumTile<Operand, kVectors, kChannels>;
}

// All taps of 3x3 pixels of one channel form one tile, because one tap would be too small.
inline constexpr int kSquareTaps = 9;

template <typename Operand, int kVectors>
inline SumTileFunction SumSquareOf() {
  if constexpr (kMaxTileChannels >= kSquareTaps) {
    return &SumTile<Operand, kVectors, kSquareTaps, 3>;
  }
  return nullptr;
}

// Adds the sums of dy over `pixels` pixels to dbias [channels]; dy must be readable in whole
// vectors.
template <typename Operand>
inline void AddBias(int64_t pixels, const float* dy, int64_t dy_stride, int64_t channels,
                    float* dbias) {
  constexpr int kChains = 4;  // independent chains of additions, to hide latency
  for (int64_t c = 0; c < channels; c += kLanes) {
    Vector sums[kChains] = {};
    const float* from = dy + c;
    int64_t p = 0;
    for (; p + kChains <= pixels; p += kChains) {
#pragma clang loop unroll(full)
      for (int i = 0; i < kChains; ++i, from += dy_stride) {
        sums[i] = Operand::AddProduct(sums[i], Element<Vector>::Load(from), Operand::One());
      }
    }
    for (; p < pixels; ++p, from += dy_stride) {
      sums[0] = Operand::AddProduct(sums[0], Element<Vector>::Load(from), Operand::One());
    }
    const PartOfVector part(channels - c < kLanes ? channels - c : kLanes);
    part.Store(dbias + c, part.Load(dbias + c) + ((sums[0] + sums[1]) + (sums[2] + sums[3])));
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_TILE_H_
