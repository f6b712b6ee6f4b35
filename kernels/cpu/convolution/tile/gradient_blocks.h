// How kernels/cpu/convolution/tile/gradient_body.h divides a convolution into blocks of pixels,
// tiles of input channels and panels of output channels. Compiled once per instruction set.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_BLOCKS_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/convolution/tile/gradient_tile.h"
#include "kernels/cpu/convolution/tile/product.h"
#include "kernels/cpu/vector/vector.h"
#include "kernels/cpu/vector/windows.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

inline constexpr int64_t kPanelWidth = 2 * kLanes;
// A panel and a tile of this many pixels fit the first-level cache together.
inline constexpr int64_t kBlockPixels = 256;
// Elements of a block's x that are laid out at a time: half of the second-level cache.
inline constexpr int64_t kArrangedElements = 96 << 10;
// An operand that is read at most this often is not copied.
inline constexpr int64_t kFewReads = 2;

MUSTER_ALWAYS_INLINE int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
MUSTER_ALWAYS_INLINE int64_t Smaller(int64_t a, int64_t b) { return a < b ? a : b; }
MUSTER_ALWAYS_INLINE int64_t Larger(int64_t a, int64_t b) { return a > b ? a : b; }

// Size of pieces of up to `most` that divide [0, size) into the smallest number.
MUSTER_ALWAYS_INLINE int64_t EvenPiece(int64_t size, int64_t most) {
  return CeilDivide(size, CeilDivide(size, most));
}

// Piece `piece` of `count` pieces of [0, size) whose sizes differ by at most one.
MUSTER_ALWAYS_INLINE Range PieceOf(int64_t size, int64_t piece, int64_t count) {
  return {size * piece / count, size * (piece + 1) / count};
}

// Channels per tile that minimise the time of tiles of this size and a smaller one at the end.
inline int64_t TileChannels(int64_t channels) {
  const auto cost = [](int64_t tile) { return Larger(tile, 4) + 1; };
  int64_t best = Smaller(channels, kMaxTileChannels);
  int64_t least = INT64_MAX;
  for (int64_t tile = best; 2 * tile > kMaxTileChannels; --tile) {
    const int64_t left = channels % tile;
    const int64_t total = channels / tile * cost(tile) + (left > 0 ? cost(left) : 0);
    if (total >= least) continue;
    least = total;
    best = tile;
  }
  return best;
}

// The convolution as sums over pixels of tiles of channels.
struct TileSums {
  int64_t samples;
  int64_t samples_at_once;    // samples treated as one image
  Axis vertical, horizontal;  // axes of taps; rows_of_taps: a row of taps is one
  bool rows_of_taps;
  bool square;             // all taps are one with kSquareTaps channels
  int64_t zero_rows = 0;   // included in `vertical` above and below x
  int64_t channels;        // per tap
  // Strides of x in elements.
  int64_t sample_stride, row_stride, pixel_stride;
  int64_t out_channels;
  int64_t tile_channels;

  TileSums(const TileConvolutionShape& shape, int64_t samples_at_once)
      : samples(shape.samples),
        samples_at_once(samples_at_once),
        vertical(shape.height, shape.kernel, shape.stride, shape.padding),
        horizontal(shape.width, shape.kernel, shape.stride, shape.padding),
        rows_of_taps(shape.kernel > 1 && shape.in_channels <= kMaxTileChannels / 2),
        square(kMaxTileChannels >= kSquareTaps && shape.taps() == kSquareTaps &&
               shape.in_channels == 1),
        channels(shape.in_channels),
        sample_stride(shape.height * shape.width * shape.in_channels),
        row_stride(shape.width * shape.in_channels),
        pixel_stride(shape.in_channels),
        out_channels(shape.out_channels) {
    if (square) {
      channels = kSquareTaps;
      zero_rows = shape.padding;
      vertical = Axis(shape.height + 2 * zero_rows, shape.kernel, shape.stride, 0);
    } else if (rows_of_taps) {
      channels *= shape.kernel;
    } else if (shape.kernel == 1 && shape.padding == 0) {
      TakeMetPixels(shape.stride);
      if (shape.stride == 1) JoinSamples();
    }
    tile_channels = TileChannels(channels);
  }

  // Reduces the image to the pixels that a kernel with one tap uses.
  void TakeMetPixels(int64_t stride) {
    vertical = Axis(vertical.windows, 1, 1, 0);
    horizontal = Axis(horizontal.windows, 1, 1, 0);
    row_stride *= stride;
    pixel_stride *= stride;
  }

  // With one tap, images do not matter: all pixels are `samples_at_once` images of one column, or
  // images of one pixel if that does not divide them.
  void JoinSamples() {
    const int64_t pixels = samples * vertical.windows * horizontal.windows;
    samples = pixels % samples_at_once == 0 ? Smaller(pixels, samples_at_once) : pixels;
    vertical = Axis(pixels == 0 ? 1 : pixels / samples, 1, 1, 0);
    horizontal = Axis(1, 1, 1, 0);
    sample_stride = vertical.windows * pixel_stride;
    row_stride = pixel_stride;
  }

  // Whether the pixels of a row, and the rows, are contiguous in memory.
  bool rows_adjoin() const { return row_stride == horizontal.size * pixel_stride; }
  int64_t row_taps() const { return rows_of_taps ? 1 : horizontal.kernel; }
  int64_t taps() const { return square ? 1 : vertical.kernel * row_taps(); }
  int64_t panels() const { return CeilDivide(out_channels, kPanelWidth); }
  int64_t tiles() const { return CeilDivide(channels, tile_channels); }
  // Pixels per image; with rows_of_taps, elements of a row of x.
  int64_t out_pixels() const { return vertical.windows * horizontal.windows; }
  int64_t padded_row() const { return (horizontal.size + 2 * horizontal.padding) * pixel_stride; }

  // Maximum sizes of a block; none of these increases if there are fewer samples.
  int64_t block_images() const {
    const int64_t images = CeilDivide(samples, samples_at_once);
    return Larger(1, Smaller(images, kBlockPixels / out_pixels()));
  }
  int64_t block_rows() const {
    return Smaller(vertical.windows, Larger(1, kBlockPixels / horizontal.windows));
  }
  int64_t block_pixels() const { return block_images() * block_rows() * horizontal.windows; }
  Range RowsUnder(Range rows) const {
    const int64_t begin = Larger(0, vertical.Begin(rows.begin));
    const int64_t end = vertical.Begin(rows.end - 1) + vertical.kernel;
    return {begin, Larger(begin, Smaller(vertical.size, end))};
  }
  // The rows of the range that are in x rather than zeros.
  Range RowsOfX(Range rows) const {
    const int64_t size = vertical.size - 2 * zero_rows;
    const int64_t begin = Smaller(size, Larger(0, rows.begin - zero_rows));
    return {begin, Larger(begin, Smaller(size, rows.end - zero_rows))};
  }
  int64_t block_in_rows() const {
    return block_images() *
           Smaller(vertical.size, (block_rows() - 1) * vertical.stride + vertical.kernel);
  }
  // The columns whose x is inside the rows.
  Range ColumnsOf(int64_t tap_column) const {
    if (rows_of_taps) return {0, horizontal.windows};
    const Range columns = horizontal.WindowsWithCell(tap_column);
    return {columns.begin, Larger(columns.begin, columns.end)};
  }
  // Elements of one tile, or of all tiles with rows_of_taps.
  int64_t arranged_tile() const {
    return block_in_rows() * (rows_of_taps ? padded_row() : horizontal.size * tile_channels);
  }
  int64_t arranged() const {
    if (rows_of_taps) return arranged_tile();
    return Smaller(tiles() * arranged_tile(), Larger(kArrangedElements, arranged_tile()));
  }
  int64_t tiles_at_once() const { return rows_of_taps ? tiles() : arranged() / arranged_tile(); }
};

// The pixels of a block that a tap sums.
struct TapPixels {
  const PixelOffsets* first = nullptr;
  int64_t count = 0;
  int64_t x = 0;  // added to their offsets
};

// The division of a call's scratch.
struct TileSumsScratch {
  static constexpr int64_t kAlignment = 64;
  PixelOffsets* pixels;  // [taps][block_pixels], or for a row of taps
  TapPixels* taps;
  float* dy;  // [block_pixels][kPanelWidth]
  float* x;

  // Returns the number of bytes needed; with a null scratch does only that.
  size_t Divide(const TileSums& sums, void* scratch) {
    int64_t used = 0;
    const auto take = [&](int64_t bytes) {
      char* const taken = scratch == nullptr ? nullptr : static_cast<char*>(scratch) + used;
      used += CeilDivide(bytes, kAlignment) * kAlignment;
      return taken;
    };
    constexpr int64_t kElement = sizeof(float);
    const int64_t offsets = sums.taps() * sums.block_pixels();
    pixels = reinterpret_cast<PixelOffsets*>(take(offsets * static_cast<int64_t>(sizeof(*pixels))));
    taps = reinterpret_cast<TapPixels*>(take(sums.taps() * static_cast<int64_t>(sizeof(*taps))));
    dy = reinterpret_cast<float*>(take(sums.block_pixels() * kPanelWidth * kElement));
    x = reinterpret_cast<float*>(take(sums.arranged() * kElement));
    return used;
  }
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_BLOCKS_H_
