// The kernels of dense convolutions: one table for each instruction set.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DENSE_KERNELS_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DENSE_KERNELS_H_

#include <cstdint>

#include "kernels/cpu/convolution/direct/kernels.h"
#include "kernels/cpu/convolution/tile/gradient.h"
#include "kernels/cpu/convolution/tile/product.h"
#include "kernels/cpu/table/instruction_set.h"

namespace muster::kernels::cpu {

struct DenseKernels {
  const char* name;   // of the instruction set
  int64_t lanes;      // floats in a vector
  bool bfloat16_dot;  // the set multiplies bfloat16, adding up in float32
  DirectConvolutionForward* direct_forward;
  DirectConvolutionBackwardWeights* direct_backward_weights;
  TileConvolution* tile_product;
  TilePadChannels* tile_pad_channels;
  TileConvolutionBackwardWeights* tile_backward_weights;
  TileConvolutionBackwardWeightsScratchBytes* tile_backward_weights_scratch_bytes;
};

// Compiled for `set`, which the processor must support.
const DenseKernels& DenseKernelsOf(InstructionSet set);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DENSE_KERNELS_H_
