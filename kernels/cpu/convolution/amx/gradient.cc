// The weights' gradient: for each tap the product of x's channels, shifted by the tap, and dy's
// over the grid positions of the pairs of images. x is laid out by channels, so that a tap's shift
// is one along the rows of a tile, dy by positions in panels of channels; sums go directly from the
// tiles to the gradient.
#include <cstring>

#include "kernels/cpu/convolution/amx/tiles.h"

namespace muster::kernels::amx {
namespace {

constexpr int64_t kElementBytes = 4;  // a pair of bfloat16

// Layout of a call's x and dy in its scratch.
struct Arrangement {
  MUSTER_AMX_INLINE Arrangement(const cpu::GridPlan& plan, int64_t in_channels,
                                int64_t out_channels, int64_t pairs)
      : positions(RoundUp(pairs * plan.positions, kTile)),
        // An odd number of cache lines, so that channels do not map to the same cache sets.
        row_elements((CeilDivide(positions + plan.largest_shift, kTile) | 1) * kTile),
        blocks(CeilDivide(in_channels, kBlock)),
        panels(CeilDivide(out_channels, kBlock)),
        x_bytes(plan.planes * blocks * kBlock * row_elements * kElementBytes),
        targets(plan.target_count) {}

  int64_t x_block_bytes() const { return kBlock * row_elements * kElementBytes; }
  int64_t dy_panel_bytes() const { return positions * kBlock * kElementBytes; }
  int64_t dy_target_bytes() const { return panels * dy_panel_bytes(); }
  int64_t bytes() const { return x_bytes + targets * dy_target_bytes(); }

  int64_t positions;     // positions of dy: whole tiles, with zeros beyond the grids
  int64_t row_elements;  // positions of x
  int64_t blocks;        // blocks of input channels
  int64_t panels;        // panels of output channels
  int64_t x_bytes;       // [plane][block][channel of the block][row_elements]
  int64_t targets;       // panels of dy: [target][panel][position][channel of the panel]
};

// Elements of a pair at a position of the grid.
struct PairAt {
  int64_t first, second;  // element offsets from the array's beginning; negative: zeros
};

// Iterates over the positions of the pairs' grids.
class PairWalk {
 public:
  PairWalk(const GradientSums& sums, const cpu::GridPlan& plan, const StoredImages& array,
           const int32_t* pixels, int64_t position)
      : array_(array),
        pixels_(pixels),
        positions_(plan.positions),
        end_(sums.first_pair + sums.pairs),
        distance_(CeilDivide(array.images, 2)),
        image_(sums.first_pair + position / positions_),
        position_(position % positions_) {}

  PairAt Next() {
    const int64_t image = image_;
    const int64_t pixel = image < end_ ? pixels_[position_] : -1;
    if (++position_ == positions_) {
      position_ = 0;
      ++image_;
    }
    if (pixel < 0) return {-1, -1};
    const int64_t second = image + distance_;
    return {(image * array_.pixels + pixel) * array_.channels,
            second < array_.images ? (second * array_.pixels + pixel) * array_.channels : -1};
  }

 private:
  const StoredImages& array_;
  const int32_t* const pixels_;
  const int64_t positions_;
  const int64_t end_;
  const int64_t distance_;
  int64_t image_;
  int64_t position_;
};

MUSTER_AMX_INLINE __m512i LoadOf(const StoredImages& array, int64_t at, int64_t channel) {
  if (at < 0) return _mm512_setzero_si512();
  return Load32(array.type, array.data, at + channel, array.channels - channel);
}

void ArrangeX(const GradientSums& sums, const Arrangement& to, int64_t plane, Piece tiles) {
  const int32_t* const pixels = sums.plan->sources + plane * sums.plan->positions;
  PairWalk walk(sums, *sums.plan, sums.x, pixels, tiles.begin * kTile);
  auto* const planes = static_cast<char*>(sums.scratch);
  const int64_t row_bytes = to.row_elements * kElementBytes;
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    PairAt pairs[kTile];
    for (PairAt& pair : pairs) pair = walk.Next();
    for (int64_t block = 0; block < to.blocks; ++block) {
      // Unpacking puts channels 8 i .. 8 i + 3 into quarter i of one, the next four into the other.
      __m512i halves[2][kTile];
      for (int64_t i = 0; i < kTile; ++i) {
        const __m512i first = LoadOf(sums.x, pairs[i].first, block * kBlock);
        const __m512i second = LoadOf(sums.x, pairs[i].second, block * kBlock);
        halves[0][i] = _mm512_unpacklo_epi16(first, second);
        halves[1][i] = _mm512_unpackhi_epi16(first, second);
      }
      char* const rows =
          planes + (plane * to.blocks + block) * to.x_block_bytes() + tile * kCacheLine;
      for (int64_t half = 0; half < 2; ++half) {
        Transpose(halves[half]);
        for (int64_t i = 0; i < kTile; ++i) {
          const int64_t channel = i / 4 * 8 + half * 4 + i % 4;
          _mm512_store_si512(rows + channel * row_bytes, halves[half][i]);
        }
      }
    }
  }
}

void ArrangeDy(const GradientSums& sums, const Arrangement& to, int64_t target, Piece tiles) {
  alignas(kCacheLine) static constexpr uint16_t kPairs[2][32] = {
      {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
       8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
       24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  const __m512i lower = _mm512_load_si512(kPairs[0]);
  const __m512i upper = _mm512_load_si512(kPairs[1]);
  PairWalk walk(sums, *sums.plan, sums.dy, sums.plan->targets[target].pixels, tiles.begin * kTile);
  char* row = static_cast<char*>(sums.scratch) + to.x_bytes + target * to.dy_target_bytes() +
              tiles.begin * kTile * 2 * kCacheLine;
  for (int64_t position = tiles.begin * kTile; position < tiles.end * kTile; ++position) {
    const PairAt pair = walk.Next();
    for (int64_t panel = 0; panel < to.panels; ++panel) {
      const __m512i first = LoadOf(sums.dy, pair.first, panel * kBlock);
      const __m512i second = LoadOf(sums.dy, pair.second, panel * kBlock);
      char* const at = row + panel * to.dy_panel_bytes();
      _mm512_store_si512(at, _mm512_permutex2var_epi16(first, lower, second));
      _mm512_store_si512(at + kCacheLine, _mm512_permutex2var_epi16(first, upper, second));
    }
    row += 2 * kCacheLine;
  }
}

class PartOfGradient {
 public:
  PartOfGradient(const GradientSums& sums, int slice, int slices)
      : sums_(sums),
        plan_(*sums.plan),
        arranged_(*sums.plan, sums.x.channels, sums.dy.channels, sums.pairs),
        taps_(sums.panels.depth / sums.x.channels) {
    const int64_t panel_parts = PanelParts(arranged_.panels, slices);
    panels_ = PieceOf(arranged_.panels, slice % panel_parts, panel_parts);
    blocks_ = PieceOf(arranged_.blocks, slice / panel_parts, slices / panel_parts);
  }

  void Run() {
    const Tiles tiles;
    for (int64_t block = blocks_.begin; block < blocks_.end; ++block) {
      for (int64_t panel = panels_.begin; panel < panels_.end; ++panel) {
        if (!sums_.add && plan_.tap_count < taps_) Clear(block, panel);
        for (int64_t place = 0; place < plan_.tap_count; ++place) SumTap(place, block, panel);
      }
    }
    // Non-temporal stores are visible to other threads only after a fence.
    if (sums_.stream) _mm_sfence();
  }

 private:
  // Bytes of a row of dy's panel, and of the gradient's panels except the last one.
  static constexpr int64_t kRowBytes = 2 * kCacheLine;

  const char* X(const cpu::GridTap& use, int64_t block) const {
    return static_cast<const char*>(sums_.scratch) +
           (use.plane * arranged_.blocks + block) * arranged_.x_block_bytes() +
           use.shift * kElementBytes;
  }
  const char* Dy(const cpu::GridTap& use, int64_t panel) const {
    return static_cast<const char*>(sums_.scratch) + arranged_.x_bytes +
           use.target * arranged_.dy_target_bytes() + panel * arranged_.dy_panel_bytes();
  }

  int64_t RowsOf(int64_t block) const { return Smaller(kBlock, sums_.x.channels - block * kBlock); }
  float* At(int64_t block, int64_t panel, int64_t tap) const {
    return sums_.dweights + sums_.panels.offset(panel, tap * sums_.x.channels + block * kBlock, 0);
  }
  int64_t RowBytes(int64_t panel) const {
    return sums_.panels.width(panel) * static_cast<int64_t>(sizeof(float));
  }

  // Clears the gradient of taps that no target uses.
  void Clear(int64_t block, int64_t panel) const {
    for (int64_t tap = 0; tap < taps_; ++tap) {
      bool seen = false;
      for (int64_t place = 0; place < plan_.tap_count; ++place) seen |= plan_.taps[place] == tap;
      if (seen) continue;
      Write(nullptr, RowsOf(block) * RowBytes(panel), At(block, panel, tap));
    }
  }

  // Writes zeros if `from` is null. Two loops, because the compiler would merge them to one kind of
  // store.
  void Write(const float* from, int64_t bytes, float* to) const {
    if (!sums_.stream) {
      if (from == nullptr) {
        std::memset(to, 0, bytes);
      } else {
        std::memcpy(to, from, bytes);
      }
      return;
    }
    for (int64_t i = 0; i < bytes / kElementBytes; i += kTile) {
      _mm512_stream_ps(to + i, from == nullptr ? _mm512_setzero_ps() : _mm512_load_ps(from + i));
    }
  }

  // The tiles' sums begin with the gradient's values or with zeros. Rows beyond the last channel
  // are not part of the gradient.
  void SumTap(int64_t place, int64_t block, int64_t panel) {
    float* const to = At(block, panel, plan_.taps[place]);
    const int64_t bytes = RowsOf(block) * RowBytes(panel);
    if (RowsOf(block) == kBlock && !sums_.stream) return SumInto(place, block, panel, to);
    if (sums_.add) std::memcpy(part_block_, to, bytes);
    SumInto(place, block, panel, part_block_);
    Write(part_block_, bytes, to);
  }

  void SumInto(int64_t place, int64_t block, int64_t panel, float* to) const {
    if (RowBytes(panel) == kCacheLine) return SumNarrow(place, block, panel, to);
    float* const lower = to + kTile * kBlock;
    if (sums_.add) {
      _tile_loadd(0, to, kRowBytes);
      _tile_loadd(1, to + kTile, kRowBytes);
      _tile_loadd(2, lower, kRowBytes);
      _tile_loadd(3, lower + kTile, kRowBytes);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const int64_t row_bytes = arranged_.row_elements * kElementBytes;
    for (int64_t use = plan_.first_uses[place]; use < plan_.first_uses[place + 1]; ++use) {
      const char* rows = X(plan_.uses[use], block);
      const char* lower_rows = rows + kTile * row_bytes;
      const char* dy = Dy(plan_.uses[use], panel);
      for (int64_t at = 0; at < arranged_.positions; at += kTile) {
        _tile_loadd(4, rows, row_bytes);
        _tile_loadd(6, dy, kRowBytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, dy + kCacheLine, kRowBytes);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, lower_rows, row_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        rows += kCacheLine;
        lower_rows += kCacheLine;
        dy += kTile * kRowBytes;
      }
    }
    _tile_stored(0, to, kRowBytes);
    _tile_stored(1, to + kTile, kRowBytes);
    _tile_stored(2, lower, kRowBytes);
    _tile_stored(3, lower + kTile, kRowBytes);
  }

  // The last panel may have rows of one tile.
  void SumNarrow(int64_t place, int64_t block, int64_t panel, float* to) const {
    float* const lower = to + kTile * kTile;
    if (sums_.add) {
      _tile_loadd(0, to, kCacheLine);
      _tile_loadd(2, lower, kCacheLine);
    } else {
      _tile_zero(0);
      _tile_zero(2);
    }
    const int64_t row_bytes = arranged_.row_elements * kElementBytes;
    for (int64_t use = plan_.first_uses[place]; use < plan_.first_uses[place + 1]; ++use) {
      const char* rows = X(plan_.uses[use], block);
      const char* dy = Dy(plan_.uses[use], panel);
      for (int64_t at = 0; at < arranged_.positions; at += kTile) {
        _tile_loadd(4, rows, row_bytes);
        _tile_loadd(5, rows + kTile * row_bytes, row_bytes);
        _tile_loadd(6, dy, kRowBytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(2, 5, 6);
        rows += kCacheLine;
        dy += kTile * kRowBytes;
      }
    }
    _tile_stored(0, to, kCacheLine);
    _tile_stored(2, lower, kCacheLine);
  }

  const GradientSums& sums_;
  const cpu::GridPlan& plan_;
  const Arrangement arranged_;
  const int64_t taps_;     // number of weights' taps
  Piece blocks_, panels_;  // pieces of this slice
  alignas(kCacheLine) float part_block_[kBlock * kBlock] = {};
};

}  // namespace

void ArrangeGradient(const GradientSums& sums, int slice, int slices) {
  const Arrangement to(*sums.plan, sums.x.channels, sums.dy.channels, sums.pairs);
  for (int64_t plane = 0; plane < sums.plan->planes; ++plane) {
    ArrangeX(sums, to, plane, PieceOf(to.row_elements / kTile, slice, slices));
  }
  for (int64_t target = 0; target < sums.plan->target_count; ++target) {
    ArrangeDy(sums, to, target, PieceOf(to.positions / kTile, slice, slices));
  }
}

void SumGradient(const GradientSums& sums, int slice, int slices) {
  PartOfGradient(sums, slice, slices).Run();
}

size_t GradientScratchBytes(const cpu::GridPlan& plan, int64_t in_channels, int64_t out_channels,
                            int64_t pairs) {
  return Arrangement(plan, in_channels, out_channels, pairs).bytes();
}

void SumBias(const StoredImages& dy, float* dbias) {
  const int64_t pixels = dy.images * dy.pixels;
  for (int64_t c = 0; c < dy.channels; c += kDepth) {
    __m512 lower = _mm512_setzero_ps(), upper = _mm512_setzero_ps();
    for (int64_t i = 0; i < pixels; ++i) {
      const __m512i both = Load32(dy.type, dy.data, i * dy.channels + c, dy.channels - c);
      const auto widened = [](__m256i halves) __attribute__((always_inline)) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
      };
      lower = _mm512_add_ps(lower, widened(_mm512_castsi512_si256(both)));
      upper = _mm512_add_ps(upper, widened(_mm512_extracti64x4_epi64(both, 1)));
    }
    _mm512_mask_storeu_ps(dbias + c, Mask16(dy.channels - c), lower);
    _mm512_mask_storeu_ps(dbias + c + kTile, Mask16(dy.channels - c - kTile), upper);
  }
}

}  // namespace muster::kernels::amx
