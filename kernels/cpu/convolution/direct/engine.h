// Engine for a network's first layer in float32: 3x3 with few input channels and no data gradient.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_ENGINE_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_ENGINE_H_

#include <memory>

#include "kernels/convolution.h"
#include "kernels/cpu/convolution/dense_kernels.h"
#include "kernels/cpu/convolution/engine.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// Whether the kernels of kernels/cpu/convolution/direct/kernels.h support the layer.
bool DirectEngineFits(const ConvolutionShape& shape, const ConvolutionOptions& options);

// `kernels` and `dense` must outlive the engine. Uses only the calling thread.
std::unique_ptr<ConvolutionEngine> MakeDirectEngine(const ConvolutionShape& shape,
                                                    const KernelTable& kernels,
                                                    const DenseKernels& dense);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_ENGINE_H_
