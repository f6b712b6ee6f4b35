// Depthwise convolution with a 3x3 kernel, padding 1 and stride 1 or 2, the usual case in models.
//
// A thread computes a strip of adjacent pixels of one row for one vector of channels. It loads each
// input of the strip once instead of up to three times, and issues all loads of a row before the
// first product.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_DEPTHWISE_CONVOLUTION_3X3_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_DEPTHWISE_CONVOLUTION_3X3_H_

#include "kernels/cuda/launch/elements.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// Whether the functions below support the shape. `arrays`: those that they access by vectors.
bool IsDepthwise3x3(const DepthwiseConvolutionShape& shape,
                    std::initializer_list<const void*> arrays);

kernels::DepthwiseConvolutionForward Depthwise3x3Forward;
kernels::DepthwiseConvolutionBackwardData Depthwise3x3BackwardData;
kernels::DepthwiseConvolutionBackwardWeights Depthwise3x3BackwardWeights;

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_DEPTHWISE_CONVOLUTION_3X3_H_
