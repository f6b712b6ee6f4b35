// 3x3 convolution with stride 1 and padding 1 for images with 1 to 4 channels: the first layer of a
// network, whose input has too few channels to fill a vector and needs no gradient.
#ifndef MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_KERNELS_H_
#define MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_KERNELS_H_

#include <cstddef>
#include <cstdint>

namespace muster::kernels {

struct DirectConvolutionShape {
  int64_t samples = 0;
  int64_t height = 1;
  int64_t width = 1;
  int64_t in_channels = 1;    // 1 to 4
  int64_t out_channels = 16;  // a multiple of 16
  bool relu = false;          // y = max(0, convolution + bias)

  // Elements of the scratch of each call: one image with a border of zeros.
  size_t scratch_elements() const { return (height + 2) * (width + 2) * in_channels; }
};

// x float32 [samples, height, width, in_channels], weights [3, 3, in_channels, out_channels], bias
// [out_channels] or null -> y [samples, height, width, out_channels]. All 64-byte aligned.
using DirectConvolutionForward = void(const DirectConvolutionShape& shape, const float* x,
                                      const float* weights, const float* bias, float* y,
                                      float* scratch);

// x, dy like y -> dweights like weights, dbias [out_channels] or null; both are overwritten; zero
// if samples is 0.
using DirectConvolutionBackwardWeights = void(const DirectConvolutionShape& shape, const float* x,
                                              const float* dy, float* dweights, float* dbias,
                                              float* scratch);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CPU_CONVOLUTION_DIRECT_KERNELS_H_
