// The matrix products of a dense convolution in bfloat16 with the AMX instructions. Requires
// HasAmx().
//
// Weights and their gradient are in the panels of kernels/cpu/convolution/tile/product.h with 16
// lanes; sums are float32. Every function computes slice `slice` of `slices`, which may run
// concurrently; the result does not depend on their number.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_AMX_KERNELS_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_AMX_KERNELS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/convolution/amx/grid.h"
#include "kernels/cpu/convolution/tile/product.h"
#include "kernels/data_type.h"
#include "kernels/epilogue.h"

namespace muster::kernels::amx {

// A tile register holds 16 rows of 16 float32 or of 32 bfloat16. A block of four tiles of sums is
// computed at once.
inline constexpr int64_t kTile = 16;
inline constexpr int64_t kBlock = 2 * kTile;
inline constexpr int64_t kDepth = 32;  // bfloat16 that one instruction sums over

// [images, pixels, channels] of float32 or bfloat16.
struct StoredImages {
  DataType type;
  const void* data;
  int64_t images;
  int64_t pixels;
  int64_t channels;
};

// If the taps of a kernel row have few channels, they are summed as one tap with the channels of
// all.
struct WindowShape {
  int64_t height;  // height of x
  int64_t width;
  int64_t out_width;
  int64_t kernel;
  int64_t stride;
  int64_t padding;
};

// x [images, height, width, channels] -> bfloat16 [images, height, out_width, kernel, channels]:
// the columns that each output uses, zeros outside the image. kernel * channels is at most kDepth.
void FillWindows(const WindowShape& shape, const StoredImages& x, void* windows, int slice,
                 int slices);

// -> bfloat16 [planes][length][channels rounded up to kDepth], zeros where the grid has no pixel.
// length is at least images * positions, rounded up to whole blocks, plus largest_shift.
void FillGrid(const cpu::GridPlan& plan, const StoredImages& source, int64_t length, void* grid,
              int slice, int slices);

// For forward, the source is x and the target y; for backward data, dy and dx.
struct GridProduct {
  const cpu::GridPlan* plan;
  int64_t images;
  const void* grid;  // result of FillGrid, or the source if it already has that layout
  int64_t length;
  // kBlock positions read instead of the grid's by the last block, if the grid ends before; null if
  // the grid continues.
  const void* last_block;
  TilePanels panels;  // panels of the weights
  const float* weights;
  int64_t source_channels;
  int64_t target_channels;
  bool transposed;       // backward data: source channels are the weights' output channels
  void* target;          // [images, target pixels, target channels] of target_type
  DataType target_type;  // float32 or bfloat16
  // As in Epilogue, for target channels.
  Epilogue epilogue;
  void* scratch;  // GridProductScratchBytes for each slice, 64-byte aligned
};
void MultiplyGrid(const GridProduct& product, int slice, int slices);
size_t GridProductScratchBytes(const cpu::GridPlan& plan, int64_t source_channels,
                               int64_t target_channels);

// The weights' gradient is summed over pairs of images, i and i + ceil(images / 2), whose pixels
// are interleaved in elements of 32 bits, so that no tap splits a pair. A call sums some of the
// pairs.
struct GradientSums {
  const cpu::GridPlan* plan;  // plan from x to y
  StoredImages x;
  StoredImages dy;
  int64_t first_pair;
  int64_t pairs;
  TilePanels panels;
  void* scratch;  // GradientScratchBytes for that many pairs, 64-byte aligned; shared by all slices
  float* dweights;
  bool add;     // accumulate to dweights instead of overwriting
  bool stream;  // use non-temporal stores for dweights
};
// Lays out x and dy in the scratch. All slices must finish before SumGradient begins.
void ArrangeGradient(const GradientSums& sums, int slice, int slices);
void SumGradient(const GradientSums& sums, int slice, int slices);
size_t GradientScratchBytes(const cpu::GridPlan& plan, int64_t in_channels, int64_t out_channels,
                            int64_t pairs);

// -> [channels], the sums of dy rounded to bfloat16.
void SumBias(const StoredImages& dy, float* dbias);

}  // namespace muster::kernels::amx

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_AMX_KERNELS_H_
