// Depthwise convolutions by the kernels of a table.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_ENGINE_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/cpu/convolution/engine.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// For a depthwise shape. `kernels` outlives the engine.
std::unique_ptr<ConvolutionEngine> MakeDepthwiseEngine(const ConvolutionShape& shape,
                                                       const ConvolutionOptions& options,
                                                       const KernelTable& kernels);

// The lowered engine, with any device's kernels; options.threads is 1 if they are not the
// processor's. INVALID_ARGUMENT for an impossible shape and for one that is not depthwise.
// `kernels` outlives the convolution.
absl::StatusOr<std::unique_ptr<Convolution>> MakeDepthwiseConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const KernelTable& kernels);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DEPTHWISE_ENGINE_H_
