// Forward and backward data: for each block of positions and panel of channels, the sum over taps
// and source channels in one pass. Panels are converted and laid out for the tiles in groups that
// fit the second-level cache.
#include "kernels/cpu/convolution/amx/tiles.h"

namespace muster::kernels::amx {
namespace {

constexpr int64_t kGroupBytes = 512 << 10;

// Bytes for the source channels that one instruction sums over, with a panel of target channels.
constexpr int64_t kStepBytes = 2 * kTileBytes;

int64_t PanelBytes(const cpu::GridPlan& plan, int64_t source_channels) {
  return plan.tap_count * CeilDivide(source_channels, kDepth) * kStepBytes;
}
int64_t GroupPanels(const cpu::GridPlan& plan, int64_t source_channels, int64_t target_channels) {
  const int64_t panels = CeilDivide(target_channels, kBlock);
  const int64_t bytes = PanelBytes(plan, source_channels);
  const int64_t fit = bytes == 0 ? panels : kGroupBytes / bytes;
  return fit < 1 ? 1 : Smaller(fit, panels);
}

class PartOfProduct {
 public:
  PartOfProduct(const GridProduct& product, int slice, int slices)
      : product_(product),
        plan_(*product.plan),
        steps_(CeilDivide(product.source_channels, kDepth)),
        row_bytes_(steps_ * kDepth * 2),
        plane_bytes_(product.length * row_bytes_),
        panel_bytes_(PanelBytes(plan_, product.source_channels)),
        group_panels_(GroupPanels(plan_, product.source_channels, product.target_channels)),
        packed_(static_cast<char*>(product.scratch) + slice * group_panels_ * panel_bytes_) {
    const int64_t panels = CeilDivide(product.target_channels, kBlock);
    const int64_t panel_parts = PanelParts(panels, slices);
    panels_ = PieceOf(panels, slice % panel_parts, panel_parts);
    blocks_ = PieceOf(CeilDivide(positions(), kBlock), slice / panel_parts, slices / panel_parts);
  }

  void Run() {
    const Tiles tiles;
    for (int64_t group = panels_.begin; group < panels_.end; group += group_panels_) {
      const int64_t end = Smaller(group + group_panels_, panels_.end);
      Pack(group, end);
      for (int64_t block = blocks_.begin; block < blocks_.end; ++block) {
        for (int64_t t = 0; t < plan_.target_count; ++t) {
          const cpu::GridTarget& target = plan_.targets[t];
          for (int64_t panel = group; panel < end; ++panel) {
            Sum(target, block, packed_ + (panel - group) * panel_bytes_);
            Store(target, block, panel);
          }
        }
      }
    }
  }

 private:
  int64_t positions() const { return product_.images * plan_.positions; }

  // The layout of each panel is [tap][step][half of the panel][pair of source channels][target
  // channel].
  void Pack(int64_t begin, int64_t end) {
    char* to = packed_;
    for (int64_t panel = begin; panel < end; ++panel) {
      for (int64_t place = 0; place < plan_.tap_count; ++place) {
        for (int64_t step = 0; step < steps_; ++step, to += kStepBytes) {
          if (product_.transposed) {
            PackTransposed(plan_.taps[place], step, panel, to);
          } else {
            PackRows(plan_.taps[place], step, panel, to);
          }
        }
      }
    }
  }

  // Half `half` of a row of the weights' panel; zeros where it has none.
  __m512 HalfRow(int64_t panel, int64_t tap, int64_t channel, int64_t channels,
                 int64_t half) const {
    const bool holds = channel < channels && half * kTile < product_.panels.width(panel);
    if (!holds) return _mm512_setzero_ps();
    return _mm512_loadu_ps(product_.weights +
                           product_.panels.offset(panel, tap * channels + channel, half * kTile));
  }

  void PackRows(int64_t tap, int64_t step, int64_t panel, char* to) const {
    alignas(kCacheLine) static constexpr uint16_t kPairs[32] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i order = _mm512_load_si512(kPairs);
    const int64_t channels = product_.source_channels;
    for (int64_t pair = 0; pair < kTile; ++pair) {
      const int64_t channel = step * kDepth + 2 * pair;
      for (int64_t half = 0; half < 2; ++half) {
        const __m512bh both = _mm512_cvtne2ps_pbh(HalfRow(panel, tap, channel + 1, channels, half),
                                                  HalfRow(panel, tap, channel, channels, half));
        _mm512_store_si512(to + half * kTileBytes + pair * kCacheLine,
                           _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(both)));
      }
    }
  }

  // A step's source channels are a panel of the weights, and the panel's channels are rows of it.
  void PackTransposed(int64_t tap, int64_t step, int64_t panel, char* to) const {
    const int64_t channels = product_.target_channels;
    for (int64_t half = 0; half < 2; ++half, to += kTileBytes) {
      __m512i rows[kTile];
      for (int64_t i = 0; i < kTile; ++i) {
        const int64_t channel = panel * kBlock + half * kTile + i;
        rows[i] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
            HalfRow(step, tap, channel, channels, 1), HalfRow(step, tap, channel, channels, 0)));
      }
      Transpose(rows);
      for (int64_t i = 0; i < kTile; ++i) _mm512_store_si512(to + i * kCacheLine, rows[i]);
    }
  }

  void Sum(const cpu::GridTarget& target, int64_t block, const char* packed) {
    const bool last = product_.last_block != nullptr && (block + 1) * kBlock > positions();
    const char* const source =
        static_cast<const char*>(last ? product_.last_block : product_.grid) +
        (last ? 0 : block * kBlock * row_bytes_);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t t = 0; t < target.tap_count; ++t) {
      const cpu::GridTap& tap = target.taps[t];
      const char* upper = source + tap.plane * plane_bytes_ + tap.shift * row_bytes_;
      const char* lower = upper + kTile * row_bytes_;
      const char* weights = packed + tap.place * steps_ * kStepBytes;
      for (int64_t step = 0; step < steps_; ++step) {
        _tile_loadd(4, upper, row_bytes_);
        _tile_loadd(6, weights, kCacheLine);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, weights + kTileBytes, kCacheLine);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, lower, row_bytes_);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        upper += kDepth * 2;
        lower += kDepth * 2;
        weights += kStepBytes;
      }
    }
    constexpr int64_t kRow = kBlock * sizeof(float);
    _tile_stored(0, sums_, kRow);
    _tile_stored(1, sums_ + kTile, kRow);
    _tile_stored(2, sums_ + kTile * kBlock, kRow);
    _tile_stored(3, sums_ + kTile * kBlock + kTile, kRow);
  }

  void Store(const cpu::GridTarget& target, int64_t block, int64_t panel) const {
    const int64_t first = block * kBlock;
    const int64_t count = Smaller(kBlock, positions() - first);
    int64_t image = first / plan_.positions;
    int64_t position = first % plan_.positions;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t pixel = target.pixels[position];
      if (pixel >= 0) {
        const int64_t at = (image * plan_.target_pixels + pixel) * product_.target_channels;
        StoreVector(sums_ + i * kBlock, at, panel * kBlock);
        StoreVector(sums_ + i * kBlock + kTile, at, panel * kBlock + kTile);
      }
      if (++position == plan_.positions) {
        position = 0;
        ++image;
      }
    }
  }

  void StoreVector(const float* sums, int64_t at, int64_t channel) const {
    const __mmask16 mask = Mask16(product_.target_channels - channel);
    if (mask == 0) return;
    __m512 value = _mm512_load_ps(sums);
    const Epilogue& end = product_.epilogue;
    if (end.scale != nullptr) {
      value = _mm512_mul_ps(value, _mm512_maskz_loadu_ps(mask, end.scale + channel));
    }
    if (end.shift != nullptr) {
      value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, end.shift + channel));
    }
    at += channel;
    const bool halves = product_.target_type == DataType::kBfloat16;
    if (end.addend != nullptr) {
      const __m512 addend =
          halves ? reinterpret_cast<__m512>(
                       _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(
                                             mask, static_cast<const uint16_t*>(end.addend) + at)),
                                         16))
                 : _mm512_maskz_loadu_ps(mask, static_cast<const float*>(end.addend) + at);
      value = _mm512_add_ps(value, addend);
    }
    // If one operand is NaN, these instructions return the second.
    if (end.activation != Activation::kNone) value = _mm512_max_ps(_mm512_setzero_ps(), value);
    if (end.activation == Activation::kRelu6) value = _mm512_min_ps(_mm512_set1_ps(6), value);
    if (halves) {
      _mm256_mask_storeu_epi16(static_cast<uint16_t*>(product_.target) + at, mask,
                               reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
    } else {
      _mm512_mask_storeu_ps(static_cast<float*>(product_.target) + at, mask, value);
    }
  }

  const GridProduct& product_;
  const cpu::GridPlan& plan_;
  const int64_t steps_;  // per tap
  const int64_t row_bytes_;
  const int64_t plane_bytes_;
  const int64_t panel_bytes_;
  const int64_t group_panels_;
  char* const packed_;
  Piece panels_, blocks_;  // pieces of this slice
  alignas(kCacheLine) float sums_[kBlock * kBlock];
};

}  // namespace

void FillWindows(const WindowShape& shape, const StoredImages& x, void* windows, int slice,
                 int slices) {
  const int64_t window = shape.kernel * x.channels;
  const int64_t row_elements = shape.width * x.channels;
  const Piece rows = PieceOf(x.images * shape.height, slice, slices);
  auto* to = static_cast<uint16_t*>(windows) + rows.begin * shape.out_width * window;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t i = 0; i < shape.out_width; ++i, to += window) {
      const int64_t first = (i * shape.stride - shape.padding) * x.channels;
      const int64_t begin = first < 0 ? -first : 0;
      const __mmask32 inside = Mask32(Smaller(window, row_elements - first)) & ~Mask32(begin);
      _mm512_mask_storeu_epi16(to, Mask32(window),
                               LoadMasked(x.type, x.data, row * row_elements + first, inside));
    }
  }
}

void FillGrid(const cpu::GridPlan& plan, const StoredImages& source, int64_t length, void* grid,
              int slice, int slices) {
  const int64_t channels = source.channels;
  const int64_t padded = RoundUp(channels, kDepth);
  const Piece piece = PieceOf(length, slice, slices);
  for (int64_t plane = 0; plane < plan.planes; ++plane) {
    const int32_t* const pixels = plan.sources + plane * plan.positions;
    uint16_t* to = static_cast<uint16_t*>(grid) + (plane * length + piece.begin) * padded;
    int64_t image = piece.begin / plan.positions;
    int64_t position = piece.begin % plan.positions;
    for (int64_t i = piece.begin; i < piece.end; ++i, to += padded) {
      const int64_t pixel = image < source.images ? pixels[position] : -1;
      const int64_t at = (image * source.pixels + pixel) * channels;
      for (int64_t c = 0; c < padded; c += kDepth) {
        _mm512_store_si512(to + c, pixel < 0
                                       ? _mm512_setzero_si512()
                                       : Load32(source.type, source.data, at + c, channels - c));
      }
      if (++position == plan.positions) {
        position = 0;
        ++image;
      }
    }
  }
}

void MultiplyGrid(const GridProduct& product, int slice, int slices) {
  PartOfProduct(product, slice, slices).Run();
}

size_t GridProductScratchBytes(const cpu::GridPlan& plan, int64_t source_channels,
                               int64_t target_channels) {
  return GroupPanels(plan, source_channels, target_channels) * PanelBytes(plan, source_channels);
}

}  // namespace muster::kernels::amx
