// Dense convolutions and linear layers in bfloat16 by the matrix instructions of AMX.
#ifndef MUSTER_KERNELS_CPU_AMX_CONVOLUTION_H_
#define MUSTER_KERNELS_CPU_AMX_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"

namespace muster::kernels::cpu {

// For one group, compute type bfloat16, and x and y stored as bfloat16 or float32. Weights are in
// the panels of kernels/tile_convolution.h, as our other kernels have them. Zeros around the image
// are multiplied: an infinite weight makes no number of them. INVALID_ARGUMENT for what it cannot
// do, or where HasAmx() says no.
absl::StatusOr<std::unique_ptr<Convolution>> MakeAmxConvolution(const ConvolutionShape& shape,
                                                                const ConvolutionOptions& options);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_AMX_CONVOLUTION_H_
