// Depthwise convolution: each channel has a kernel of its own.
//
// Activations are NHWC; arithmetic is in float32 whatever they are stored as. The weights of one
// kernel position lie together, so that channels fill vectors.
#ifndef MUSTER_KERNELS_DEPTHWISE_CONVOLUTION_H_
#define MUSTER_KERNELS_DEPTHWISE_CONVOLUTION_H_

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/epilogue.h"

namespace muster::kernels {

struct DepthwiseConvolutionShape {
  int64_t rows = 0;
  int64_t height = 1;  // of the input
  int64_t width = 1;
  int64_t channels = 1;
  int64_t kernel = 3;  // square
  int64_t stride = 1;
  int64_t padding = 1;  // zeros at each side
  // Of x, dx, y, dy and an epilogue's addend.
  DataType type = DataType::kFloat32;
  // Both operands of each product are rounded to it as they are loaded. kFloat32, or `type`; any
  // where `type` is kFloat32.
  DataType compute_type = DataType::kFloat32;

  int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
  int64_t input_elements() const { return height * width * channels; }  // of one row
  int64_t output_elements() const { return out_height() * out_width() * channels; }
  // Of one kernel position, those after the last channel's being zero.
  int64_t padded_channels() const { return (channels + 15) / 16 * 16; }
  int64_t weights_elements() const { return kernel * kernel * padded_channels(); }
};

// x [rows, height, width, channels], weights float32 [kernel, kernel, padded_channels]
// -> y [rows, out_height, out_width, channels], which overlaps no other array.
using DepthwiseConvolutionForward = void(const DepthwiseConvolutionShape& shape, const void* x,
                                         const float* weights, const Epilogue& epilogue, void* y);

// dy like y -> dx like x; zero where no output sees the input.
using DepthwiseConvolutionBackwardData = void(const DepthwiseConvolutionShape& shape,
                                              const void* dy, const float* weights, void* dx);

// x, dy -> dweights like weights, dbias float32 [channels] or null; written, not added to; zero
// when rows is 0. dbias is the sum of dy rounded as an operand is.
using DepthwiseConvolutionBackwardWeights = void(const DepthwiseConvolutionShape& shape,
                                                 const void* x, const void* dy, float* dweights,
                                                 float* dbias);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DEPTHWISE_CONVOLUTION_H_
