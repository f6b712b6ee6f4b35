// Dense two-dimensional convolution (one group): shapes, the layout of the weights, and the product
// shared by forward and backward data.
//
// Output channels are grouped in panels of two vectors, so that a tile of pixels times a panel of
// channels fits the registers and the weights of a panel are read in order. Pixels are grouped into
// classes by the taps (kernel positions) that are inside the image for them: padding is not
// multiplied, and images are not copied into a border of zeros.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PRODUCT_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/activation.h"
#include "kernels/data_type.h"

namespace muster::kernels {

// Code that is compiled per instruction set uses these small members; they are always inlined, so
// that the linker cannot merge copies.
#define MUSTER_TILE_INLINE __attribute__((always_inline)) constexpr

// x is [samples, height, width, in_channels], y [samples, out_height, out_width, out_channels].
struct TileConvolutionShape {
  int64_t samples = 0;
  int64_t height = 1;  // height of the input
  int64_t width = 1;
  int64_t in_channels = 1;
  int64_t out_channels = 1;
  int64_t kernel = 1;  // square
  int64_t stride = 1;
  int64_t padding = 0;  // zeros on each side

  MUSTER_TILE_INLINE int64_t taps() const { return kernel * kernel; }
  MUSTER_TILE_INLINE int64_t out_height() const {
    return (height + 2 * padding - kernel) / stride + 1;
  }
  MUSTER_TILE_INLINE int64_t out_width() const {
    return (width + 2 * padding - kernel) / stride + 1;
  }
};

// The panel layout of float32 weights and of their gradient: for each panel of 2 * lanes output
// channels [tap][in_channel][width], with tap = kernel row * kernel + kernel column; panels are
// contiguous. The width of the last panel is its number of channels rounded up to lanes; the
// padding is zero.
struct TilePanels {
  int64_t lanes = 1;  // floats per vector: DenseKernels::lanes
  int64_t depth = 1;  // taps * in_channels: rows of a panel
  int64_t out_channels = 1;

  MUSTER_TILE_INLINE int64_t full_width() const { return 2 * lanes; }
  MUSTER_TILE_INLINE int64_t count() const {
    return (out_channels + full_width() - 1) / full_width();
  }
  // Number of output channels in the panel, without padding.
  MUSTER_TILE_INLINE int64_t channels(int64_t panel) const {
    const int64_t left = out_channels - panel * full_width();
    return left < full_width() ? left : full_width();
  }
  MUSTER_TILE_INLINE int64_t width(int64_t panel) const {
    return (channels(panel) + lanes - 1) / lanes * lanes;
  }
  // Index of the first element of the panel, or of element (row, channel of the panel) in it.
  MUSTER_TILE_INLINE int64_t offset(int64_t panel) const { return panel * full_width() * depth; }
  MUSTER_TILE_INLINE int64_t offset(int64_t panel, int64_t row, int64_t channel) const {
    return offset(panel) + row * width(panel) + channel;
  }
  MUSTER_TILE_INLINE int64_t elements() const {
    return offset(count() - 1) + depth * width(count() - 1);
  }
};

MUSTER_TILE_INLINE TilePanels PanelsOf(const TileConvolutionShape& shape, int64_t lanes) {
  return {.lanes = lanes,
          .depth = shape.taps() * shape.in_channels,
          .out_channels = shape.out_channels};
}

// Taps whose products with one pixel are contiguous in the source and in the panel: those of one
// kernel row, or one tap.
struct TileRun {
  int64_t source;  // byte offset from the source of the pixel's first tap
  int64_t step;    // first step in the panel; a step is a float32 or a pair of bfloat16
  int64_t steps;
};

// Byte offsets of a row within an image, or of a pixel within a row.
struct TilePosition {
  int64_t source;  // offset of the first tap of the class
  int64_t target;
};

// The pixels (rows x columns) of every image that use the same taps.
struct TileClass {
  const TileRun* runs;
  int64_t run_count;  // 0: the sums are zero
  const TilePosition* rows;
  int64_t row_count;
  const TilePosition* columns;
  int64_t column_count;
};

// The part of the computation that is independent of the data. For forward, the source is x and the
// target y; for backward data, dy and dx.
struct TilePlan {
  DataType type;  // type of the source and of the products: kFloat32, or kBfloat16
  // For bfloat16, an odd number of channels is followed by a zero in each pixel.
  int64_t source_channels;
  int64_t target_channels;
  int64_t source_image_bytes;
  int64_t target_image_bytes;
  const TileClass* classes;
  int64_t class_count;
  // The tap of the weights at each position of the packed order; negative if no class uses it.
  const int64_t* taps;
  int64_t tap_count;
  bool transposed;       // backward data: source channels are the weights' output channels
  int64_t group_panels;  // number of panels that fit the cache together
  int64_t group_bytes;   // size of that many packed panels

  // Number of steps per tap.
  MUSTER_TILE_INLINE int64_t steps() const {
    return type == DataType::kFloat32 ? source_channels : (source_channels + 1) / 2;
  }
  MUSTER_TILE_INLINE bool packs() const { return transposed || type != DataType::kFloat32; }
};

struct TileProduct {
  const TilePlan* plan;
  int64_t samples;
  const void* source;    // elements of the plan's type
  const float* weights;  // weights of the convolution, in the panel layout
  void* target;          // elements of target_type
  DataType target_type;
  // target = activation(sum * scale + shift + addend)
  const float* scale;  // [target channels]; null: 1
  const float* shift;  // [target channels]; null: 0
  const void* addend;  // like target; null: 0
  Activation activation;
  void* scratch;  // the plan's group_bytes, 64-byte aligned; null if it does not pack
};

// Computes slice `slice` of `slices`, which may run concurrently, each with its own scratch.
using TileConvolution = void(const TileProduct& product, int slice, int slices);

// x [pixels, channels] of type `from` -> y bfloat16 [pixels, channels + 1]; the last one is zero.
using TilePadChannels = void(DataType from, const void* x, int64_t pixels, int64_t channels,
                             void* y);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_PRODUCT_H_
