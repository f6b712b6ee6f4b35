#include <algorithm>
#include <vector>

#include "kernels/half.h"
#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {
namespace {

using Doubles = std::vector<double>;

Doubles LoadExactly(DataType type, const void* from, int64_t count) {
  Doubles values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = LoadElement(type, from, i);
  return values;
}

// Loads operands of products.
Doubles Load(const DepthwiseConvolutionShape& shape, DataType type, const void* from,
             int64_t count) {
  Doubles values = LoadExactly(type, from, count);
  for (double& value : values) value = RoundTo(shape.compute_type, value);
  return values;
}

// Calls visit(index in the input, in the weights, in the output) for each product.
template <typename Visit>
void ForEachProduct(const DepthwiseConvolutionShape& shape, const Visit& visit) {
  int64_t out = 0;
  for (int64_t sample = 0; sample < shape.samples; ++sample) {
    for (int64_t h = 0; h < shape.out_height(); ++h) {
      for (int64_t w = 0; w < shape.out_width(); ++w, out += shape.channels) {
        for (int64_t tap = 0; tap < shape.kernel * shape.kernel; ++tap) {
          const int64_t in_h = h * shape.stride - shape.padding + tap / shape.kernel;
          const int64_t in_w = w * shape.stride - shape.padding + tap % shape.kernel;
          if (in_h < 0 || in_h >= shape.height || in_w < 0 || in_w >= shape.width) continue;
          const int64_t in = ((sample * shape.height + in_h) * shape.width + in_w) * shape.channels;
          for (int64_t c = 0; c < shape.channels; ++c) {
            visit(in + c, tap * shape.padded_channels() + c, out + c);
          }
        }
      }
    }
  }
}

}  // namespace

void DepthwiseConvolutionForward(const DepthwiseConvolutionShape& shape, const void* x,
                                 const float* weights, const Epilogue& epilogue, void* y) {
  const Doubles xs = Load(shape, shape.type, x, shape.samples * shape.input_elements());
  const Doubles ws = Load(shape, DataType::kFloat32, weights, shape.weights_elements());
  Doubles sums(shape.samples * shape.output_elements());
  ForEachProduct(
      shape, [&](int64_t in, int64_t weight, int64_t out) { sums[out] += xs[in] * ws[weight]; });
  for (int64_t i = 0; i < static_cast<int64_t>(sums.size()); ++i) {
    const int64_t c = i % shape.channels;
    if (epilogue.scale != nullptr) sums[i] *= double{epilogue.scale[c]};
    if (epilogue.shift != nullptr) sums[i] += double{epilogue.shift[c]};
    if (epilogue.addend != nullptr) sums[i] += LoadElement(shape.type, epilogue.addend, i);
    if (epilogue.activation != Activation::kNone && sums[i] < 0) sums[i] = 0;
    if (epilogue.activation == Activation::kRelu6 && sums[i] > 6) sums[i] = 6;
    StoreElement(shape.type, sums[i], y, i);
  }
}

void DepthwiseConvolutionBackwardData(const DepthwiseConvolutionShape& shape, const void* dy,
                                      const float* weights, void* dx) {
  const Doubles dys = Load(shape, shape.type, dy, shape.samples * shape.output_elements());
  const Doubles ws = Load(shape, DataType::kFloat32, weights, shape.weights_elements());
  Doubles sums(shape.samples * shape.input_elements());
  ForEachProduct(
      shape, [&](int64_t in, int64_t weight, int64_t out) { sums[in] += dys[out] * ws[weight]; });
  for (size_t i = 0; i < sums.size(); ++i) {
    StoreElement(shape.type, sums[i], dx, static_cast<int64_t>(i));
  }
}

void DepthwiseConvolutionBackwardWeights(const DepthwiseConvolutionShape& shape, const void* x,
                                         const void* dy, float* dweights, float* dbias) {
  const Doubles xs = Load(shape, shape.type, x, shape.samples * shape.input_elements());
  const Doubles dys = Load(shape, shape.type, dy, shape.samples * shape.output_elements());
  Doubles weight_sums(shape.weights_elements());
  ForEachProduct(shape, [&](int64_t in, int64_t weight, int64_t out) {
    weight_sums[weight] += dys[out] * xs[in];
  });
  std::copy(weight_sums.begin(), weight_sums.end(), dweights);
  if (dbias == nullptr) return;
  Doubles bias_sums(shape.channels);
  for (size_t i = 0; i < dys.size(); ++i) bias_sums[i % shape.channels] += dys[i];
  std::copy(bias_sums.begin(), bias_sums.end(), dbias);
}

}  // namespace muster::kernels::reference
