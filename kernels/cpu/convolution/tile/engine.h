// Dense convolutions as products of tiles of pixels and panels of weights.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_TILE_ENGINE_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_TILE_ENGINE_H_

#include <memory>

#include "kernels/convolution.h"
#include "kernels/cpu/convolution/dense_kernels.h"
#include "kernels/cpu/convolution/engine.h"

namespace muster::kernels::cpu {

// For one group. Computes in options.compute_type: float32, or bfloat16 if kernels.bfloat16_dot.
// `kernels` must outlive the engine.
std::unique_ptr<ConvolutionEngine> MakeTileEngine(const ConvolutionShape& shape,
                                                  const ConvolutionOptions& options,
                                                  const DenseKernels& kernels);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_TILE_ENGINE_H_
