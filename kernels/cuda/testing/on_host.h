// For tests where there is no GPU.
#ifndef MUSTER_KERNELS_CUDA_TESTING_ON_HOST_H_
#define MUSTER_KERNELS_CUDA_TESTING_ON_HOST_H_

#include "kernels/cuda/convolution/convolution_kernels.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {

// The CUDA kernels' own code, run by the processor one thread after the other: slow, but what it
// computes is what a GPU would but for rounding.
const KernelTable& CudaKernelsOnHost();
const ConvolutionKernels& CudaConvolutionKernelsOnHost();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_TESTING_ON_HOST_H_
