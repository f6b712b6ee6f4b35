// The kernels of the .cu files as the C++ compiler sees them.
#include "kernels/cuda/on_host.h"

#include "kernels/cuda/activation.cu"
#include "kernels/cuda/batch_norm.cu"
#include "kernels/cuda/batch_norm_backward.cu"
#include "kernels/cuda/cast.cu"
#include "kernels/cuda/convolution_kernels.cu"
#include "kernels/cuda/cross_entropy.cu"
#include "kernels/cuda/depthwise_3x3.cu"
#include "kernels/cuda/depthwise_convolution.cu"
#include "kernels/cuda/dropout.cu"
#include "kernels/cuda/images.cu"
#include "kernels/cuda/kernel_table.cu"
#include "kernels/cuda/lars.cu"
#include "kernels/cuda/nt_xent.cu"
#include "kernels/cuda/optimizer.cu"
#include "kernels/cuda/pooling.cu"
#include "kernels/cuda/update.cu"

namespace muster::kernels {

const KernelTable& CudaKernelsOnHost() { return cuda_on_host::kKernels; }

const ConvolutionKernels& CudaConvolutionKernelsOnHost() {
  return cuda_on_host::kConvolutionKernels;
}

}  // namespace muster::kernels
