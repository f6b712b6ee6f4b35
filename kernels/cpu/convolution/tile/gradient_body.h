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
                      float* dweights, float* dbias, void* scratch, int slice, int slices)
      : sums_(shape, Operand::kSamples), x_(x), dy_(dy), dweights_(dweights), dbias_(dbias) {
    scratch_.Divide(sums_, scratch);
    int64_t panel_parts = Smaller(slices, sums_.panels());
    while (slices % panel_parts != 0) --panel_parts;
    panels_ = PieceOf(sums_.panels(), slice % panel_parts, panel_parts);
    tiles_ = PieceOf(sums_.tiles(), slice / panel_parts, slices / panel_parts);
    x_in_place_ =
        Operand::kSamples == 1 && !sums_.rows_of_taps && sums_.taps() * sums_.panels() <= kFewReads;
    dy_in_place_ = Operand::kSamples == 1 && sums_.out_channels % kLanes == 0 &&
                   (sums_.panels() == 1 || sums_.taps() * sums_.tiles() <= kFewReads);
  }

  void Run() {
    if (tiles_.size() == 0) return;
    if (tiles_.begin > 0) dbias_ = nullptr;
    if (dbias_ != nullptr) {
      const int64_t end = Smaller(sums_.out_channels, panels_.end * kPanelWidth);
      for (int64_t c = panels_.begin * kPanelWidth; c < end; ++c) dbias_[c] = 0;
    }
    const int64_t images = CeilDivide(sums_.samples, Operand::kSamples);
    if (images == 0) return SumTiles(tiles_, true);
    block_images_ = EvenPiece(images, sums_.block_images());
    block_rows_ = EvenPiece(sums_.vertical.windows, sums_.block_rows());
    row_blocks_ = CeilDivide(sums_.vertical.windows, block_rows_);
    blocks_ = CeilDivide(images, block_images_) * row_blocks_;
    for (int64_t block = 0; block < blocks_; ++block) {
      const int64_t listed_pixels = out_pixels();
      images_ = ImagesOf(block);
      rows_ = RowsOf(block);
      in_rows_ = sums_.RowsUnder(rows_);
      ListPixels(out_pixels() == listed_pixels);
      LookAhead(block + 1);
      SumBlock(block == 0);
    }
  }

 private:
  using Row = typename Operand::Row;
  using Stored = typename Operand::Stored;

  Range ImagesOf(int64_t block) const {
    const int64_t begin = block / row_blocks_ * block_images_;
    return {begin, Smaller(begin + block_images_, CeilDivide(sums_.samples, Operand::kSamples))};
  }
  Range RowsOf(int64_t block) const {
    const int64_t begin = block % row_blocks_ * block_rows_;
    return {begin, Smaller(begin + block_rows_, sums_.vertical.windows)};
  }

  // Prefetches memory of the block into ahead_.
  void LookAhead(int64_t block) {
    ahead_ = Ahead();
    if (block == blocks_) return;
    const Range images = ImagesOf(block);
    const Range rows = RowsOf(block);
    const Range in_rows = sums_.RowsOfX(sums_.RowsUnder(rows));
    const int64_t out_row_stride = sums_.horizontal.windows * sums_.out_channels;
    if (sums_.rows_adjoin()) AddAhead(x_, images, sums_.sample_stride, in_rows, sums_.row_stride);
    AddAhead(dy_, images, sums_.vertical.windows * out_row_stride, rows, out_row_stride);
  }

  void AddAhead(const void* array, Range images, int64_t sample_stride, Range rows,
                int64_t row_stride) {
    const int64_t first_sample = images.begin * Operand::kSamples;
    const int64_t samples = Smaller(images.end * Operand::kSamples, sums_.samples) - first_sample;
    const auto* const first =
        static_cast<const Stored*>(array) + first_sample * sample_stride + rows.begin * row_stride;
    if (row_blocks_ == 1) return ahead_.Add(first, samples * sample_stride * sizeof(Stored));
    for (int64_t sample = 0; sample < samples; ++sample) {
      ahead_.Add(first + sample * sample_stride, rows.size() * row_stride * sizeof(Stored));
    }
  }

  int64_t images() const { return images_.size(); }
  int64_t out_pixels() const { return images() * rows_.size() * sums_.horizontal.windows; }
  int64_t dy_stride() const { return dy_in_place_ ? sums_.out_channels : kPanelWidth; }

  // Element strides of the block's x between pixels, rows and images.
  struct Strides {
    int64_t pixel, row, image;
  };
  Strides XStrides() const {
    if (x_in_place_) return {sums_.pixel_stride, sums_.row_stride, sums_.sample_stride};
    const int64_t pixel = sums_.rows_of_taps ? sums_.pixel_stride : sums_.tile_channels;
    const int64_t row = sums_.rows_of_taps ? sums_.padded_row() : sums_.horizontal.size * pixel;
    return {pixel, row, row * in_rows_.size()};
  }
  // Element stride between its tiles.
  int64_t TileStride() const {
    return x_in_place_ || sums_.rows_of_taps ? sums_.tile_channels : images() * XStrides().image;
  }

  // Lists, for each tap, the pixels of the block whose x is inside the image. Existing lists of as
  // many pixels remain valid: taps of images divided into blocks use sublists of one list.
  void ListPixels(bool listed) {
    const bool divided = row_blocks_ > 1;
    const int64_t above = sums_.vertical.Begin(rows_.begin) - in_rows_.begin;
    for (int64_t tap = 0; tap < sums_.taps(); ++tap) {
      const int64_t tap_row = tap / sums_.row_taps();
      const int64_t tap_column = tap % sums_.row_taps();
      Range rows = sums_.vertical.WindowsWithCell(tap_row);
      rows.begin = Larger(rows.begin, rows_.begin);
      rows.end = Larger(rows.begin, Smaller(rows.end, rows_.end));
      PixelOffsets* const list =
          scratch_.pixels + (divided ? tap_column : tap) * sums_.block_pixels();
      if (!divided) {
        if (listed) continue;
        const int64_t x_row = sums_.vertical.Begin(rows.begin) + tap_row;
        scratch_.taps[tap] = {list, ListPixelsOf(rows, x_row, tap_column, list), 0};
        continue;
      }
      if (!listed && tap_row == 0) ListPixelsOf(rows_, 0, tap_column, list);
      const int64_t columns = sums_.ColumnsOf(tap_column).size();
      scratch_.taps[tap] = {list + (rows.begin - rows_.begin) * columns, rows.size() * columns,
                            (above + tap_row) * XStrides().row};
    }
  }

  // Lists the pixels of `rows` of the block's images, the first of which uses row x_row of x.
  int64_t ListPixelsOf(Range rows, int64_t x_row, int64_t tap_column, PixelOffsets* to) const {
    const Strides strides = XStrides();
    const Range columns = sums_.ColumnsOf(tap_column);
    const int64_t x_column =
        sums_.rows_of_taps ? 0 : sums_.horizontal.Begin(columns.begin) + tap_column;
    int64_t count = 0;
    for (int64_t image = 0; image < images(); ++image) {
      for (int64_t h = rows.begin; h < rows.end; ++h) {
        const int64_t in_row = x_row + (h - rows.begin) * sums_.vertical.stride;
        int64_t x = image * strides.image + in_row * strides.row + x_column * strides.pixel;
        const int64_t row = image * rows_.size() + h - rows_.begin;
        int64_t dy = (row * sums_.horizontal.windows + columns.begin) * dy_stride();
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
      x_tiles_ = static_cast<const float*>(x_) + images_.begin * sums_.sample_stride +
                 in_rows_.begin * sums_.row_stride + tiles.begin * sums_.tile_channels;
      return;
    }
    x_tiles_ = scratch_.x;
    if (sums_.rows_of_taps) {
      x_tiles_ += tiles.begin * sums_.tile_channels;
      return PadRows();
    }
    const int64_t rows = in_rows_.size();
    const bool joined = sums_.rows_adjoin();
    const int64_t runs = joined ? 1 : rows;
    const int64_t pixels = joined ? rows * sums_.horizontal.size : sums_.horizontal.size;
    float* to = scratch_.x;
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      const int64_t first = t * sums_.tile_channels;
      const int64_t channels = Smaller(sums_.tile_channels, sums_.channels - first);
      for (int64_t image = images_.begin; image < images_.end; ++image) {
        for (int64_t run = 0; run < runs; ++run, to += pixels * sums_.tile_channels) {
          CopyPixels<Operand>(XRow(image, in_rows_.begin + run) + first, sums_.pixel_stride, pixels,
                              channels, channels, sums_.tile_channels, to);
        }
      }
    }
  }

  // Copies the block's rows of x between zeros.
  void PadRows() {
    const int64_t zeros = sums_.horizontal.padding * sums_.pixel_stride;
    const int64_t elements = sums_.horizontal.size * sums_.pixel_stride;
    const Range rows = sums_.RowsOfX(in_rows_);
    float* to = scratch_.x;
    for (int64_t image = images_.begin; image < images_.end; ++image) {
      for (int64_t row = in_rows_.begin; row < in_rows_.end; ++row) {
        const int64_t x_row = row - sums_.zero_rows;
        const int64_t copied = x_row >= rows.begin && x_row < rows.end ? elements : 0;
        for (int64_t i = 0; i < zeros; ++i) to[i] = 0;
        CopyPixels<Operand>(XRow(image, copied == 0 ? 0 : x_row), 0, 1, copied, elements + zeros, 0,
                            to + zeros);
        to += sums_.padded_row();
      }
    }
  }

  // Sets dy_panel_ to the block's dy of the panel.
  void ArrangeDy(int64_t panel, int64_t channels) {
    const int64_t columns = sums_.horizontal.windows;
    const int64_t sample_stride = sums_.out_pixels() * sums_.out_channels;
    const int64_t first = rows_.begin * columns * sums_.out_channels + panel * kPanelWidth;
    if (dy_in_place_) {
      dy_panel_ = static_cast<const float*>(dy_) + images_.begin * sample_stride + first;
      return;
    }
    dy_panel_ = scratch_.dy;
    const int64_t pixels = rows_.size() * columns;
    for (int64_t i = 0; i < images(); ++i) {
      CopyPixels<Operand>(RowOf(dy_, images_.begin + i, sample_stride, first), sums_.out_channels,
                          pixels, channels, CeilDivide(channels, kLanes) * kLanes, kPanelWidth,
                          scratch_.dy + i * pixels * kPanelWidth);
    }
  }

  Row XRow(int64_t image, int64_t row) const {
    return RowOf(x_, image, sums_.sample_stride, row * sums_.row_stride);
  }
  Row RowOf(const void* array, int64_t image, int64_t sample_stride, int64_t offset) const {
    const int64_t sample = image * Operand::kSamples;
    return Operand::RowAt(array, sample * sample_stride + offset, sample_stride,
                          sample + 1 >= sums_.samples);
  }

  // Adds the block's sums to dweights, or overwrites them; zeros if there are no samples.
  void SumTiles(Range tiles, bool first) {
    for (int64_t panel = panels_.begin; panel < panels_.end; ++panel) {
      const int64_t channels = Smaller(kPanelWidth, sums_.out_channels - panel * kPanelWidth);
      if (sums_.samples > 0) ArrangeDy(panel, channels);
      if (dbias_ != nullptr && tiles.begin == 0 && sums_.samples > 0) {
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
    const int64_t x_row_stride = XStrides().row;
    float* const to = dweights_ + panel * kPanelWidth * sums_.taps() * sums_.channels;
    for (int64_t t = tiles.begin; t < tiles.end; ++t) {
      const int64_t channel = t * sums_.tile_channels;
      const int64_t channels = Smaller(sums_.tile_channels, sums_.channels - channel);
      const SumTileFunction sum =
          sums_.square ? SumSquareOf<Operand, kVectors>() : SumTileOf<Operand, kVectors>(channels);
      const float* const x =
          sums_.samples > 0 ? x_tiles_ + (t - tiles.begin) * TileStride() : nullptr;
      for (int64_t tap = 0; tap < sums_.taps(); ++tap) {
        const TapPixels pixels = sums_.samples > 0 ? scratch_.taps[tap] : TapPixels{};
        if (pixels.count == 0 && !first) continue;
        const Ahead::CacheLines ahead = ahead_.Take(pixels.count);
        sum(pixels.first, pixels.count, x + pixels.x, x_row_stride, dy_panel_, kWidth, !first,
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
  Range panels_, tiles_;  // ranges of this slice
  bool x_in_place_, dy_in_place_;
  int64_t block_images_ = 0, block_rows_ = 0;
  int64_t row_blocks_ = 0, blocks_ = 0;  // per image, in total
  // The current block.
  Range images_{0, 0}, rows_{0, 0}, in_rows_{0, 0};
  const float* x_tiles_ = nullptr;
  const float* dy_panel_ = nullptr;
  Ahead ahead_;
};

inline void TileConvolutionBackwardWeights(const TileConvolutionShape& shape, DataType type,
                                           const void* x, const void* dy, float* dweights,
                                           float* dbias, void* scratch, int slice, int slices) {
#if defined(__AVX512BF16__)
  if (type == DataType::kBfloat16) {
    return TileWeightsGradient<Bfloat16Pairs>(shape, x, dy, dweights, dbias, scratch, slice, slices)
        .Run();
  }
#endif
  TileWeightsGradient<FloatOperand>(shape, x, dy, dweights, dbias, scratch, slice, slices).Run();
}

inline size_t TileConvolutionBackwardWeightsScratchBytes(const TileConvolutionShape& shape,
                                                         DataType type) {
  const int64_t samples_at_once = type == DataType::kBfloat16 ? 2 : 1;
  return TileSumsScratch().Divide(TileSums(shape, samples_at_once), nullptr);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_BODY_H_
