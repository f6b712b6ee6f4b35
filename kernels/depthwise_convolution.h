// Depthwise convolution: each channel has its own kernel.
//
// Activations are NHWC; arithmetic is in float32 for all storage types. The weights of one kernel
// position are contiguous over channels, so that channels fill vectors.
#ifndef MUSTER_KERNELS_DEPTHWISE_CONVOLUTION_H_
#define MUSTER_KERNELS_DEPTHWISE_CONVOLUTION_H_

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/epilogue.h"

namespace muster::kernels {

struct DepthwiseConvolutionShape {
  int64_t samples = 0;
  int64_t height = 1;  // height of the input
  int64_t width = 1;
  int64_t channels = 1;
  int64_t kernel = 3;  // square
  int64_t stride = 1;
  int64_t padding = 1;  // zeros on each side
  // Type of x, dx, y, dy and an epilogue's addend.
  DataType type = DataType::kFloat32;
  // Type to which both operands of each product are rounded when loaded: kFloat32 or `type`; any
  // kernel type if `type` is kFloat32.
  DataType compute_type = DataType::kFloat32;

  int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
  // Elements of one sample.
  int64_t input_elements() const { return height * width * channels; }
  int64_t output_elements() const { return out_height() * out_width() * channels; }
  // Channels per kernel position, including the zero padding.
  int64_t padded_channels() const { return (channels + 15) / 16 * 16; }
  int64_t weights_elements() const { return kernel * kernel * padded_channels(); }
};

// x [samples, height, width, channels], weights float32 [kernel, kernel, padded_channels]
// -> y [samples, out_height, out_width, channels], which overlaps no other array.
using DepthwiseConvolutionForward = void(const DepthwiseConvolutionShape& shape, const void* x,
                                         const float* weights, const Epilogue& epilogue, void* y);

// dy like y -> dx like x; zero where no output depends on the input.
using DepthwiseConvolutionBackwardData = void(const DepthwiseConvolutionShape& shape,
                                              const void* dy, const float* weights, void* dx);

// x, dy -> dweights like weights, dbias float32 [channels] or null; both are overwritten; zero if
// samples is 0. dbias is the sum of dy rounded like an operand.
using DepthwiseConvolutionBackwardWeights = void(const DepthwiseConvolutionShape& shape,
                                                 const void* x, const void* dy, float* dweights,
                                                 float* dbias);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DEPTHWISE_CONVOLUTION_H_
