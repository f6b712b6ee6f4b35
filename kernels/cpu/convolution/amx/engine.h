// Dense convolutions and linear layers in bfloat16 by the matrix instructions of AMX.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_AMX_ENGINE_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_AMX_ENGINE_H_

#include <memory>

#include "kernels/convolution.h"
#include "kernels/cpu/convolution/engine.h"

namespace muster::kernels::cpu {

// For one group, compute type bfloat16, x and y stored as bfloat16 or float32, and only if
// HasAmx(). Weights are in the panels of kernels/cpu/convolution/tile/product.h, as the tile engine
// has them. Zeros around the image are multiplied: an infinite weight makes NaN of them.
std::unique_ptr<ConvolutionEngine> MakeAmxEngine(const ConvolutionShape& shape,
                                                 const ConvolutionOptions& options);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_AMX_ENGINE_H_
