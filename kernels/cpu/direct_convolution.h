// The Convolution of a network's first layer, by our own kernels.
#ifndef MUSTER_KERNELS_CPU_DIRECT_CONVOLUTION_H_
#define MUSTER_KERNELS_CPU_DIRECT_CONVOLUTION_H_

#include <memory>

#include "kernels/convolution.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// Whether kernels/direct_convolution.h covers the layer.
bool DirectConvolutionFits(const ConvolutionShape& shape, const ConvolutionOptions& options);

// `kernels` outlives the convolution. Computes in the calling thread alone.
std::unique_ptr<Convolution> MakeDirectConvolution(const ConvolutionShape& shape,
                                                   const ConvolutionOptions& options,
                                                   const KernelTable& kernels);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_DIRECT_CONVOLUTION_H_
