// The weights' gradient of a dense convolution; see kernels/cpu/convolution/tile/product.h for
// shapes and the layout of weights.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_H_

#include <cstddef>

#include "kernels/cpu/convolution/tile/product.h"
#include "kernels/data_type.h"

namespace muster::kernels {

// x [samples, height, width, in_channels] and dy [samples, out_height, out_width, out_channels],
// both of `type`: kFloat32, or kBfloat16 if the table has bfloat16_dot -> dweights float32 in the
// panel layout, dbias [out_channels] or null; both are overwritten; zero if samples is 0. Products
// are accumulated in float32.
//
// Computes slice `slice` of `slices`. Slices write disjoint elements and may run concurrently; the
// result does not depend on their number. scratch: ScratchBytes per slice, 64-byte aligned, with
// unspecified content.
using TileConvolutionBackwardWeights = void(const TileConvolutionShape& shape, DataType type,
                                            const void* x, const void* dy, float* dweights,
                                            float* dbias, void* scratch, int slice, int slices);

// Sufficient for any smaller number of samples.
using TileConvolutionBackwardWeightsScratchBytes = size_t(const TileConvolutionShape& shape,
                                                          DataType type);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_GRADIENT_H_
