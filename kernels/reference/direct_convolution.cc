#include <algorithm>
#include <vector>

#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {
namespace {

// Calls visit(tap, input pixel) for each tap that lies inside the image.
template <typename Visit>
void ForEachTap(const DirectConvolutionShape& shape, int64_t row, int64_t h, int64_t w,
                const Visit& visit) {
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t s = 0; s < 3; ++s) {
      const int64_t in_h = h + r - 1;
      const int64_t in_w = w + s - 1;
      if (in_h < 0 || in_h >= shape.height || in_w < 0 || in_w >= shape.width) continue;
      visit(r * 3 + s, (row * shape.height + in_h) * shape.width + in_w);
    }
  }
}

}  // namespace

void DirectConvolutionForward(const DirectConvolutionShape& shape, const float* x,
                              const float* weights, const float* bias, float* y, float* scratch) {
  const int64_t outs = shape.out_channels;
  const int64_t ins = shape.in_channels;
  for (int64_t pixel = 0; pixel < shape.rows * shape.height * shape.width; ++pixel) {
    const int64_t w = pixel % shape.width;
    const int64_t h = pixel / shape.width % shape.height;
    const int64_t row = pixel / shape.width / shape.height;
    for (int64_t o = 0; o < outs; ++o) {
      double sum = bias != nullptr ? bias[o] : 0.0f;
      ForEachTap(shape, row, h, w, [&](int64_t tap, int64_t in) {
        for (int64_t i = 0; i < ins; ++i) {
          sum += double{x[in * ins + i]} * double{weights[(tap * ins + i) * outs + o]};
        }
      });
      y[pixel * outs + o] = static_cast<float>(shape.relu && sum < 0 ? 0 : sum);
    }
  }
}

void DirectConvolutionBackwardWeights(const DirectConvolutionShape& shape, const float* x,
                                      const float* dy, float* dweights, float* dbias,
                                      float* scratch) {
  const int64_t outs = shape.out_channels;
  const int64_t ins = shape.in_channels;
  std::vector<double> weight_sums(9 * ins * outs, 0.0);
  std::vector<double> bias_sums(outs, 0.0);
  for (int64_t pixel = 0; pixel < shape.rows * shape.height * shape.width; ++pixel) {
    const int64_t w = pixel % shape.width;
    const int64_t h = pixel / shape.width % shape.height;
    const int64_t row = pixel / shape.width / shape.height;
    for (int64_t o = 0; o < outs; ++o) {
      const double gradient = dy[pixel * outs + o];
      bias_sums[o] += gradient;
      ForEachTap(shape, row, h, w, [&](int64_t tap, int64_t in) {
        for (int64_t i = 0; i < ins; ++i) {
          weight_sums[(tap * ins + i) * outs + o] += gradient * double{x[in * ins + i]};
        }
      });
    }
  }
  std::copy(weight_sums.begin(), weight_sums.end(), dweights);
  if (dbias != nullptr) std::copy(bias_sums.begin(), bias_sums.end(), dbias);
}

}  // namespace muster::kernels::reference
