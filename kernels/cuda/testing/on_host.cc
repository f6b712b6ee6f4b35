// Compiles the .cu files for the CPU.
#include "kernels/cuda/testing/on_host.h"

#include "kernels/cuda/activation/activation.cu"
#include "kernels/cuda/activation/cast.cu"
#include "kernels/cuda/activation/dropout.cu"
#include "kernels/cuda/activation/pooling.cu"
#include "kernels/cuda/convolution/convolution_kernels.cu"
#include "kernels/cuda/convolution/depthwise/convolution.cu"
#include "kernels/cuda/convolution/depthwise/convolution_3x3.cu"
#include "kernels/cuda/image/images.cu"
#include "kernels/cuda/loss/cross_entropy.cu"
#include "kernels/cuda/loss/nt_xent.cu"
#include "kernels/cuda/normalization/batch_norm.cu"
#include "kernels/cuda/normalization/batch_norm_backward.cu"
#include "kernels/cuda/optimizer/lars.cu"
#include "kernels/cuda/optimizer/optimizer.cu"
#include "kernels/cuda/optimizer/update.cu"
#include "kernels/cuda/table/kernel_table.cu"

namespace muster::kernels {

const KernelTable& CudaKernelsOnHost() { return cuda_on_host::kKernels; }

const ConvolutionKernels& CudaConvolutionKernelsOnHost() {
  return cuda_on_host::kConvolutionKernels;
}

}  // namespace muster::kernels
