// Depthwise convolutions with the kernels of a table.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_ENGINE_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/cpu/convolution/engine.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// For a depthwise shape. `kernels` must outlive the engine.
std::unique_ptr<ConvolutionEngine> MakeDepthwiseEngine(const ConvolutionShape& shape,
                                                       const ConvolutionOptions& options,
                                                       const KernelTable& kernels);

// The lowered engine, with any device's kernels; options.threads must be 1 for devices other than
// the CPU. INVALID_ARGUMENT for an invalid shape or one that is not depthwise. `kernels` must
// outlive the convolution.
absl::StatusOr<std::unique_ptr<Convolution>> MakeDepthwiseConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const KernelTable& kernels);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_ENGINE_H_
