// Convolution in any precision by one in float32.
#ifndef MUSTER_KERNELS_CPU_CASTING_CONVOLUTION_H_
#define MUSTER_KERNELS_CPU_CASTING_CONVOLUTION_H_

#include <memory>

#include "kernels/convolution.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// `float32` is of `shape` and `options`, but for the types, all float32. Each call rounds the
// operands to options.compute_type and widens them in the workspace, and rounds what float32 gives
// to the type that it is stored in, once, after the epilogue. The weights' layout is float32's.
// `kernels` outlives the convolution.
std::unique_ptr<Convolution> MakeCastingConvolution(const ConvolutionShape& shape,
                                                    const ConvolutionOptions& options,
                                                    const KernelTable& kernels,
                                                    std::unique_ptr<Convolution> float32);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CASTING_CONVOLUTION_H_
