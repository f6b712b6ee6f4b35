// Shared by the AMX kernels. Include only in files that are compiled for AMX.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_AMX_TILES_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_AMX_TILES_H_

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/convolution/amx/kernels.h"

#define MUSTER_AMX_INLINE inline __attribute__((always_inline))

namespace muster::kernels::amx {

constexpr int64_t kCacheLine = 64;
constexpr int64_t kTileBytes = kTile * kCacheLine;

MUSTER_AMX_INLINE constexpr int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
MUSTER_AMX_INLINE constexpr int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
MUSTER_AMX_INLINE constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDivide(a, b) * b; }

struct Piece {
  int64_t begin;
  int64_t end;
};
MUSTER_AMX_INLINE Piece PieceOf(int64_t count, int64_t slice, int64_t slices) {
  return {count * slice / slices, count * (slice + 1) / slices};
}

// Number of slices of the panels when `slices` slices divide the panels and another dimension: the
// largest divisor of `slices` that is at most `panels`.
MUSTER_AMX_INLINE int64_t PanelParts(int64_t panels, int64_t slices) {
  int64_t panel_parts = Smaller(slices, panels);
  while (slices % panel_parts != 0) --panel_parts;
  return panel_parts;
}

// Configures all eight registers as full tiles during its lifetime.
class Tiles {
 public:
  MUSTER_AMX_INLINE Tiles() {
    alignas(kCacheLine) uint8_t config[kCacheLine] = {};
    config[0] = 1;  // palette
    for (int tile = 0; tile < 8; ++tile) {
      config[16 + 2 * tile] = kCacheLine;  // bytes per row
      config[48 + tile] = kTile;           // rows
    }
    _tile_loadconfig(config);
  }
  MUSTER_AMX_INLINE ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Mask of the elements below `count`; empty for a negative count.
MUSTER_AMX_INLINE __mmask16 Mask16(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}
MUSTER_AMX_INLINE __mmask32 Mask32(int64_t count) {
  return static_cast<__mmask32>(count >= 32 ? 0xffffffff : count <= 0 ? 0 : (1u << count) - 1);
}

// Elements [at, at + 32) of an array of float32 or bfloat16, rounded to bfloat16; zeros where the
// mask is clear.
MUSTER_AMX_INLINE __m512i LoadMasked(DataType type, const void* array, int64_t at, __mmask32 mask) {
  if (type == DataType::kBfloat16) {
    return _mm512_maskz_loadu_epi16(mask, static_cast<const uint16_t*>(array) + at);
  }
  const float* const from = static_cast<const float*>(array) + at;
  return reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 16),
                          _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from)));
}
MUSTER_AMX_INLINE __m512i Load32(DataType type, const void* array, int64_t at, int64_t count) {
  return LoadMasked(type, array, at, Mask32(count));
}

// Transposes 16 rows of 16 elements of 32 bits.
MUSTER_AMX_INLINE void Transpose(__m512i (&rows)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Each row now contains, in its quarters, the parts of four rows in four columns.
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0xdd);
    t[8 + i] = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
    rows[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
    rows[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
    rows[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
  }
}

}  // namespace muster::kernels::amx

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_AMX_TILES_H_
