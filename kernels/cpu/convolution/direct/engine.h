// A network's first layer in float32: 3x3 with few input channels and no data gradient.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_ENGINE_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_ENGINE_H_

#include <memory>

#include "kernels/convolution.h"
#include "kernels/cpu/convolution/dense_kernels.h"
#include "kernels/cpu/convolution/engine.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// Whether kernels/cpu/convolution/direct/kernels.h covers the layer.
bool DirectEngineFits(const ConvolutionShape& shape, const ConvolutionOptions& options);

// `kernels` and `dense` outlive the engine. Computes in the calling thread alone.
std::unique_ptr<ConvolutionEngine> MakeDirectEngine(const ConvolutionShape& shape,
                                                    const KernelTable& kernels,
                                                    const DenseKernels& dense);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_ENGINE_H_
