// Compiles the .cu files for the CPU.
#include "kernels/cuda/testing/on_host.h"

#include "kernels/cuda/table/all_sources.h"

namespace muster::kernels {

const KernelTable& CudaKernelsOnHost() { return cuda_on_host::kKernels; }

const ConvolutionKernels& CudaConvolutionKernelsOnHost() {
  return cuda_on_host::kConvolutionKernels;
}

}  // namespace muster::kernels
