// The sources of all kernels, for compilation by the C++ compiler. Included by one file per variant
// of launch.h.
#ifndef MUSTER_KERNELS_CUDA_TABLE_ALL_SOURCES_H_
#define MUSTER_KERNELS_CUDA_TABLE_ALL_SOURCES_H_

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
#include "kernels/cuda/normalization/batch_norm_pool.cu"
#include "kernels/cuda/optimizer/lars.cu"
#include "kernels/cuda/optimizer/optimizer.cu"
#include "kernels/cuda/optimizer/update.cu"
#include "kernels/cuda/table/kernel_table.cu"

#endif  // MUSTER_KERNELS_CUDA_TABLE_ALL_SOURCES_H_
