// The weights' gradient of a dense convolution; see kernels/cpu/convolution/tile/gradient.h.
// Compiled once per instruction set.
//
// Computes, for each tap, the matrix product of x's channels, shifted by the tap, and dy's over all
// pixels of the batch, one block of pixels at a time: the block's x is laid out by tiles of
// channels and its dy by panels, so that a tile and a panel stay in the first-level cache while all
// taps are summed. A tap uses only the pixels whose x is inside the image, from a list that is the
// same for every tile and panel. In 16 bits, an element contains values of two samples, so that no
// tap splits a pair of pixels.
//
// If x has few channels, the taps of a kernel row and their channels are contiguous in memory: they
// are summed as one tap with all of these channels, over rows with zeros at both ends.
//
// With an odd number of samples, half of the last pair in 16 bits is zero.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_BODY_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_BODY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/convolution/tile/gradient.h"
#include "kernels/cpu/convolution/tile/gradient_blocks.h"
#include "kernels/cpu/convolution/tile/gradient_tile.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/cpu/vector/windows.h"
#include "kernels/data_type.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// One slice of a call.
template <typename Operand>
class TileWeightsGradient {
 public:
  TileWeightsGradient(const TileConvolutionShape& shape, const void* x, const void* dy,
                      float* dweights, float* dbias, void* scratch, int part, int parts)
      : sums_(shape, Operand::kRows), x_(x), dy_(dy), dweights_(dweights), dbias_(dbias) {
    scratch_.Divide(sums_, scratch);
    int64_t panel_parts = Smaller(parts, sums_.panels());
    while (parts % panel_parts != 0) --panel_parts;
    panels_ = PieceOf(sums_.panels(), part % panel_parts, panel_parts);
    tiles_ = PieceOf(sums_.tiles(), part / panel_parts, parts / panel_parts);
    x_in_place_ =
        Operand::kRows == 1 && !sums_.lines_of_taps && sums_.taps() * sums_.panels() <= kFewReads;
    dy_in_place_ = Operand::kRows == 1 && sums_.out_channels % kLanes == 0 &&
                   (sums_.panels() == 1 || sums_.taps() * sums_.tiles() <= kFewReads);
  }

  void Run() {
    if (tiles_.begin > 0) dbias_ = nullptr;
    if (dbias_ != nullptr) {
      const int64_t end = Smaller(sums_.out_channels, panels_.end * kPanelWidth);
      for (int64_t c = panels_.begin * kPanelWidth; c < end; ++c) dbias_[c] = 0;
    }
    const int64_t images = CeilDivide(sums_.rows, Operand::kRows);
    if (images == 0) return SumTiles(tiles_, true);
    block_images_ = EvenPiece(images, sums_.block_images());
    block_lines_ = EvenPiece(sums_.vertical.windows, sums_.block_lines());
    line_blocks_ = CeilDivide(sums_.vertical.windows, block_lines_);
    blocks_ = CeilDivide(images, block_images_) * line_blocks_;
    for (int64_t block = 0; block < blocks_; ++block) {
      const int64_t listed_pixels = out_pixels();
      images_ = ImagesOf(block);
      lines_ = LinesOf(block);
      in_lines_ = sums_.LinesUnder(lines_);
      ListPixels(out_pixels() == listed_pixels);
      LookAhead(block + 1);
      SumBlock(block == 0);
    }
  }

 private:
  using Line = typename Operand::Line;
  using Stored = typename Operand::Stored;

  Range ImagesOf(int64_t block) const {
    const int64_t begin = block / line_blocks_ * block_images_;
    return {begin, Smaller(begin + block_images_, CeilDivide(sums_.rows, Operand::kRows))};
  }
  Range LinesOf(int64_t block) const {
    const int64_t begin = block % line_blocks_ * block_lines_;
    return {begin, Smaller(begin + block_lines_, sums_.vertical.windows)};
  }

  // Prefetches memory of the block into ahead_.
  void LookAhead(int64_t block) {
    ahead_ = Ahead();
    if (block == blocks_) return;
    const Range images = ImagesOf(block);
    const Range lines = LinesOf(block);
    const Range in_lines = sums_.LinesOfX(sums_.LinesUnder(lines));
    const int64_t out_line = sums_.horizontal.windows * sums_.out_channels;
    if (sums_.lines_adjoin()) AddAhead(x_, images, sums_.row_stride, in_lines, sums_.line_stride);
    AddAhead(dy_, images, sums_.vertical.windows * out_line, lines, out_line);
  }

  void AddAhead(const void* array, Range images, int64_t row_stride, Range lines,
                int64_t line_stride) {
    const int64_t first_row = images.begin * Operand::kRows;
    const int64_t rows = Smaller(images.end * Operand::kRows, sums_.rows) - first_row;
    const auto* const first =
        static_cast<const Stored*>(array) + first_row * row_stride + lines.begin * line_stride;
    if (line_blocks_ == 1) return ahead_.Add(first, rows * row_stride * sizeof(Stored));
    for (int64_t row = 0; row < rows; ++row) {
      ahead_.Add(first + row * row_stride, lines.size() * line_stride * sizeof(Stored));
    }
  }

  int64_t images() const { return images_.size(); }
  int64_t out_pixels() const { return images() * lines_.size() * sums_.horizontal.windows; }
  int64_t dy_stride() const { return dy_in_place_ ? sums_.out_channels : kPanelWidth; }

  // Element strides of the block's x between pixels, rows and images.
  struct Strides {
    int64_t pixel, line, image;
  };
  Strides XStrides() const {
    if (x_in_place_) return {sums_.pixel_stride, sums_.line_stride, sums_.row_stride};
    const int64_t pixel = sums_.lines_of_taps ? sums_.pixel_stride : sums_.tile_channels;
    const int64_t line = sums_.lines_of_taps ? sums_.padded_line() : sums_.horizontal.size * pixel;
    return {pixel, line, line * in_lines_.size()};
  }
  // Element stride between its tiles.
  int64_t TileStride() const {
    return x_in_place_ || sums_.lines_of_taps ? sums_.tile_channels : images() * XStrides().image;
  }

  // Lists, for each tap, the pixels of the block whose x is inside the image. Existing lists of as
  // many pixels remain valid: taps of images divided into blocks use sublists of one list.
  void ListPixels(bool listed) {
    const bool divided = line_blocks_ > 1;
    const int64_t above = sums_.vertical.Begin(lines_.begin) - in_lines_.begin;
    for (int64_t tap = 0; tap < sums_.taps(); ++tap) {
      const int64_t tap_line = tap / sums_.line_taps();
      const int64_t tap_column = tap % sums_.line_taps();
      Range lines = sums_.vertical.WindowsWithCell(tap_line);
      lines.begin = Larger(lines.begin, lines_.begin);
      lines.end = Larger(lines.begin, Smaller(lines.end, lines_.end));
      PixelOffsets* const list =
          scratch_.pixels + (divided ? tap_column : tap) * sums_.block_pixels();
      if (!divided) {
        if (listed) continue;
        const int64_t x_line = sums_.vertical.Begin(lines.begin) + tap_line;
        scratch_.taps[tap] = {list, ListPixelsOf(lines, x_line, tap_column, list), 0};
        continue;
      }
      if (!listed && tap_line == 0) ListPixelsOf(lines_, 0, tap_column, list);
      const int64_t columns = sums_.ColumnsOf(tap_column).size();
      scratch_.taps[tap] = {list + (lines.begin - lines_.begin) * columns, lines.size() * columns,
                            (above + tap_line) * XStrides().line};
    }
  }

  // Lists the pixels of `lines` of the block's images, the first of which uses row x_line of x.
  int64_t ListPixelsOf(Range lines, int64_t x_line, int64_t tap_column, PixelOffsets* to) const {
    const Strides strides = XStrides();
    const Range columns = sums_.ColumnsOf(tap_column);
    const int64_t x_column =
        sums_.lines_of_taps ? 0 : sums_.horizontal.Begin(columns.begin) + tap_column;
    int64_t count = 0;
    for (int64_t image = 0; image < images(); ++image) {
      for (int64_t h = lines.begin; h < lines.end; ++h) {
        const int64_t in_line = x_line + (h - lines.begin) * sums_.vertical.stride;
        int64_t x = image * strides.image + in_line * strides.line + x_column * strides.pixel;
        const int64_t line = image * lines_.size() + h - lines_.begin;
        int64_t dy = (line * sums_.horizontal.windows + columns.begin) * dy_stride();
        for (int64_t w = columns.begin; w < columns.end; ++w) {
          to[count++] = {static_cast<int32_t>(x), static_cast<int32_t>(dy)};
          x += sums_.horizontal.stride * strides.pixel;
          dy += dy_stride();
        }
      }
    }
    return count;
  }

  void SumBlock(bool first) {
    const int64_t at_once = x_in_place_ ? tiles_.size() : sums_.tiles_at_once();
    for (int64_t t = tiles_.begin; t < tiles_.end; t += at_once) {
      const Range tiles = {t, Smaller(t + at_once, tiles_.end)};
      ArrangeX(tiles);
      SumTiles(tiles, first);
    }
  }

  // Sets x_tiles_ to the first of the tiles.
  void ArrangeX(Range tiles) {
    if (x_in_place_) {
      x_tiles_ = static_cast<const float*>(x_) + images_.begin * sums_.row_stride +
                 in_lines_.begin * sums_.line_stride + tiles.begin * sums_.tile_channels;
      return;
    }
    x_tiles_ = scratch_.x;
    if (sums_.lines_of_taps) {
      x_tiles_ += tiles.begin * sums_.tile_channels;
      return PadLines();
    }
    const int64_t lines = in_lines_.size();
    const bool joined = sums_.lines_adjoin();
    const int64_t runs = joined ? 1 : lines;
    const int64_t pixels = joined ? lines * sums_.horizontal.size : sums_.horizontal.size;
    float* to = scratch_.x;
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      const int64_t first = t * sums_.tile_channels;
      const int64_t channels = Smaller(sums_.tile_channels, sums_.channels - first);
      for (int64_t image = images_.begin; image < images_.end; ++image) {
        for (int64_t run = 0; run < runs; ++run, to += pixels * sums_.tile_channels) {
          CopyPixels<Operand>(XLine(image, in_lines_.begin + run) + first, sums_.pixel_stride,
                              pixels, channels, channels, sums_.tile_channels, to);
        }
      }
    }
  }

  // Copies the block's rows of x between zeros.
  void PadLines() {
    const int64_t zeros = sums_.horizontal.padding * sums_.pixel_stride;
    const int64_t elements = sums_.horizontal.size * sums_.pixel_stride;
    const Range lines = sums_.LinesOfX(in_lines_);
    float* to = scratch_.x;
    for (int64_t image = images_.begin; image < images_.end; ++image) {
      for (int64_t line = in_lines_.begin; line < in_lines_.end; ++line) {
        const int64_t x_line = line - sums_.zero_lines;
        const int64_t copied = x_line >= lines.begin && x_line < lines.end ? elements : 0;
        for (int64_t i = 0; i < zeros; ++i) to[i] = 0;
        CopyPixels<Operand>(XLine(image, copied == 0 ? 0 : x_line), 0, 1, copied, elements + zeros,
                            0, to + zeros);
        to += sums_.padded_line();
      }
    }
  }

  // Sets dy_panel_ to the block's dy of the panel.
  void ArrangeDy(int64_t panel, int64_t channels) {
    const int64_t columns = sums_.horizontal.windows;
    const int64_t row_stride = sums_.out_pixels() * sums_.out_channels;
    const int64_t first = lines_.begin * columns * sums_.out_channels + panel * kPanelWidth;
    if (dy_in_place_) {
      dy_panel_ = static_cast<const float*>(dy_) + images_.begin * row_stride + first;
      return;
    }
    dy_panel_ = scratch_.dy;
    const int64_t pixels = lines_.size() * columns;
    for (int64_t i = 0; i < images(); ++i) {
      CopyPixels<Operand>(LineOf(dy_, images_.begin + i, row_stride, first), sums_.out_channels,
                          pixels, channels, CeilDivide(channels, kLanes) * kLanes, kPanelWidth,
                          scratch_.dy + i * pixels * kPanelWidth);
    }
  }

  Line XLine(int64_t image, int64_t line) const {
    return LineOf(x_, image, sums_.row_stride, line * sums_.line_stride);
  }
  Line LineOf(const void* array, int64_t image, int64_t row_stride, int64_t offset) const {
    const int64_t row = image * Operand::kRows;
    return Operand::LineAt(array, row * row_stride + offset, row_stride, row + 1 >= sums_.rows);
  }

  // Adds the block's sums to dweights, or overwrites them; zeros if there are no rows.
  void SumTiles(Range tiles, bool first) {
    for (int64_t panel = panels_.begin; panel < panels_.end; ++panel) {
      const int64_t channels = Smaller(kPanelWidth, sums_.out_channels - panel * kPanelWidth);
      if (sums_.rows > 0) ArrangeDy(panel, channels);
      if (dbias_ != nullptr && tiles.begin == 0 && sums_.rows > 0) {
        AddBias<Operand>(out_pixels(), dy_panel_, dy_stride(), channels,
                         dbias_ + panel * kPanelWidth);
      }
      if (channels > kLanes) {
        SumPanel<2>(panel, tiles, first);
      } else {
        SumPanel<1>(panel, tiles, first);
      }
    }
  }

  template <int kVectors>
  void SumPanel(int64_t panel, Range tiles, bool first) {
    constexpr int64_t kWidth = kVectors * kLanes;
    const int64_t x_line = XStrides().line;
    float* const to = dweights_ + panel * kPanelWidth * sums_.taps() * sums_.channels;
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      const int64_t channel = t * sums_.tile_channels;
      const int64_t channels = Smaller(sums_.tile_channels, sums_.channels - channel);
      const SumTileFunction sum =
          sums_.square ? SumSquareOf<Operand, kVectors>() : SumTileOf<Operand, kVectors>(channels);
      const float* const x = sums_.rows > 0 ? x_tiles_ + (t - tiles.begin) * TileStride() : nullptr;
      for (int64_t tap = 0; tap < sums_.taps(); ++tap) {
        const TapPixels pixels = sums_.rows > 0 ? scratch_.taps[tap] : TapPixels{};
        if (pixels.count == 0 && !first) continue;
        const Ahead::Lines ahead = ahead_.Take(pixels.count);
        sum(pixels.first, pixels.count, x + pixels.x, x_line, dy_panel_, kWidth, !first,
            ahead.first, ahead.step, to + (tap * sums_.channels + channel) * kWidth);
      }
    }
  }

  const TileSums sums_;
  const void* const x_;
  const void* const dy_;
  float* const dweights_;
  float* dbias_;
  TileSumsScratch scratch_;
  Range panels_, tiles_;  // of this slice
  bool x_in_place_, dy_in_place_;
  int64_t block_images_ = 0, block_lines_ = 0;
  int64_t line_blocks_ = 0, blocks_ = 0;  // per image, in total
  // The current block.
  Range images_{0, 0}, lines_{0, 0}, in_lines_{0, 0};
  const float* x_tiles_ = nullptr;
  const float* dy_panel_ = nullptr;
  Ahead ahead_;
};

inline void TileConvolutionBackwardWeights(const TileConvolutionShape& shape, DataType type,
                                           const void* x, const void* dy, float* dweights,
                                           float* dbias, void* scratch, int part, int parts) {
#if defined(__AVX512BF16__)
  if (type == DataType::kBfloat16) {
    return TileWeightsGradient<Bfloat16Pairs>(shape, x, dy, dweights, dbias, scratch, part, parts)
        .Run();
  }
#endif
  TileWeightsGradient<FloatOperand>(shape, x, dy, dweights, dbias, scratch, part, parts).Run();
}

inline size_t TileConvolutionBackwardWeightsScratchBytes(const TileConvolutionShape& shape,
                                                         DataType type) {
  const int64_t rows_at_once = type == DataType::kBfloat16 ? 2 : 1;
  return TileSumsScratch().Divide(TileSums(shape, rows_at_once), nullptr);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_BODY_H_
