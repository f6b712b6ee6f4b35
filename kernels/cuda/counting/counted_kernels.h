// The wrappers of the CUDA kernels, compiled so that a launch is recorded in the LaunchLog and runs
// nothing.
#ifndef MUSTER_KERNELS_CUDA_COUNTING_COUNTED_KERNELS_H_
#define MUSTER_KERNELS_CUDA_COUNTING_COUNTED_KERNELS_H_

#include "kernels/cuda/convolution/convolution_kernels.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {

const KernelTable& CountedKernels();
const ConvolutionKernels& CountedConvolutionKernels();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_COUNTING_COUNTED_KERNELS_H_
