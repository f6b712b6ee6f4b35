// The kernels of dense convolutions, one table per instruction set.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DENSE_KERNELS_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DENSE_KERNELS_H_

#include <cstdint>

#include "kernels/cpu/convolution/direct/kernels.h"
#include "kernels/cpu/convolution/tile/gradient.h"
#include "kernels/cpu/convolution/tile/product.h"
#include "kernels/cpu/table/instruction_set.h"

namespace muster::kernels::cpu {

struct DenseKernels {
  const char* name;   // name of the instruction set
  int64_t lanes;      // floats per vector
  bool bfloat16_dot;  // whether the set has bfloat16 products accumulated in float32
  DirectConvolutionForward* direct_forward;
  DirectConvolutionBackwardWeights* direct_backward_weights;
  TileConvolution* tile_product;
  TilePadChannels* tile_pad_channels;
  TileConvolutionBackwardWeights* tile_backward_weights;
  TileConvolutionBackwardWeightsScratchBytes* tile_backward_weights_scratch_bytes;
};

// The table compiled for `set`, which the CPU must support.
const DenseKernels& DenseKernelsOf(InstructionSet set);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DENSE_KERNELS_H_
