// The weights' gradient of a depthwise convolution: each channel has a kernel of its own.
//
// For images so small that oneDNN has no depthwise kernel for them.
#ifndef MUSTER_KERNELS_DEPTHWISE_CONVOLUTION_H_
#define MUSTER_KERNELS_DEPTHWISE_CONVOLUTION_H_

#include <cstdint>

namespace muster::kernels {

struct DepthwiseConvolutionShape {
  int64_t rows = 0;
  int64_t height = 1;  // of the input
  int64_t width = 1;
  int64_t channels = 1;
  int64_t kernel = 3;  // square
  int64_t stride = 1;
  int64_t padding = 1;  // zeros at each side

  int64_t out_height() const { return (height + 2 * padding - kernel) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - kernel) / stride + 1; }
};

// x float32 [rows, height, width, channels], dy [rows, out_height, out_width, channels] -> dweights
// [kernel, kernel, channels], dbias [channels] or null; written, not added to; zero when rows is 0.
using DepthwiseConvolutionBackwardWeights = void(const DepthwiseConvolutionShape& shape,
                                                 const float* x, const float* dy, float* dweights,
                                                 float* dbias);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DEPTHWISE_CONVOLUTION_H_
