// The dense Convolution by our own kernels.
#ifndef MUSTER_KERNELS_CPU_TILE_CONVOLUTION_H_
#define MUSTER_KERNELS_CPU_TILE_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// INVALID_ARGUMENT for an impossible shape, for groups, and for a compute type other than float32,
// or bfloat16 where kernels.bfloat16_dot. `kernels` outlives the convolution.
absl::StatusOr<std::unique_ptr<Convolution>> MakeTileConvolution(const ConvolutionShape& shape,
                                                                 const ConvolutionOptions& options,
                                                                 const KernelTable& kernels);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_TILE_CONVOLUTION_H_
