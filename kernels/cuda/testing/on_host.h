// The CUDA kernels compiled for the CPU, for tests on machines without a GPU.
#ifndef MUSTER_KERNELS_CUDA_TESTING_ON_HOST_H_
#define MUSTER_KERNELS_CUDA_TESTING_ON_HOST_H_

#include "kernels/cuda/convolution/convolution_kernels.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {

// The code of the CUDA kernels, run on the CPU one thread after the other. Slow; results are those
// of a GPU except for rounding.
const KernelTable& CudaKernelsOnHost();
const ConvolutionKernels& CudaConvolutionKernelsOnHost();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_TESTING_ON_HOST_H_
