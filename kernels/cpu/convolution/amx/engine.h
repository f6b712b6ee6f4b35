// Dense convolutions and linear layers in bfloat16 with the AMX matrix instructions.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_AMX_ENGINE_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_AMX_ENGINE_H_

#include <memory>

#include "kernels/convolution.h"
#include "kernels/cpu/convolution/engine.h"

namespace muster::kernels::cpu {

// For one group, compute type bfloat16, x and y stored as bfloat16 or float32, and only if
// HasAmx(). Weights are in the panel layout of kernels/cpu/convolution/tile/product.h, as in the
// tile engine. Padding zeros are multiplied, so that infinite weights give NaN there.
std::unique_ptr<ConvolutionEngine> MakeAmxEngine(const ConvolutionShape& shape,
                                                 const ConvolutionOptions& options);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_AMX_ENGINE_H_
