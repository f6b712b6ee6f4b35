#include <algorithm>
#include <vector>

#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {

void DepthwiseConvolutionBackwardWeights(const DepthwiseConvolutionShape& shape, const float* x,
                                         const float* dy, float* dweights, float* dbias) {
  const int64_t channels = shape.channels;
  const int64_t out_pixels = shape.rows * shape.out_height() * shape.out_width();
  std::vector<double> weight_sums(shape.kernel * shape.kernel * channels, 0.0);
  std::vector<double> bias_sums(channels, 0.0);
  for (int64_t out = 0; out < out_pixels * channels; ++out) {
    const int64_t c = out % channels;
    const int64_t pixel = out / channels;
    const int64_t row = pixel / shape.out_width() / shape.out_height();
    bias_sums[c] += dy[out];
    for (int64_t tap = 0; tap < shape.kernel * shape.kernel; ++tap) {
      const int64_t h = pixel / shape.out_width() % shape.out_height() * shape.stride -
                        shape.padding + tap / shape.kernel;
      const int64_t w =
          pixel % shape.out_width() * shape.stride - shape.padding + tap % shape.kernel;
      if (h < 0 || h >= shape.height || w < 0 || w >= shape.width) continue;
      const int64_t in = ((row * shape.height + h) * shape.width + w) * channels + c;
      weight_sums[tap * channels + c] += double{dy[out]} * double{x[in]};
    }
  }
  std::copy(weight_sums.begin(), weight_sums.end(), dweights);
  if (dbias != nullptr) std::copy(bias_sums.begin(), bias_sums.end(), dbias);
}

}  // namespace muster::kernels::reference
