#include "kernels/convolution.h"

#include <algorithm>
#include <vector>

namespace muster::kernels::reference {
namespace {

class ReferenceConvolution : public Convolution {
 public:
  ReferenceConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options)
      : shape_(shape), options_(options) {}

  int64_t weights_elements() const override { return shape_.weights(); }
  std::string weights_layout() const override { return "oihw"; }
  std::string description() const override { return "reference"; }
  size_t workspace_bytes() const override { return 0; }

  void ImportWeights(const float* canonical, float* weights) const override {
    std::copy_n(canonical, shape_.weights(), weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    std::copy_n(weights, shape_.weights(), canonical);
  }

  void Forward(int64_t rows, const float* x, const float* weights, const float* bias, float* y,
               void* workspace) override {
    std::vector<double> sums(rows * shape_.output_elements());
    for (size_t i = 0; i < sums.size(); ++i) {
      sums[i] = options_.bias ? bias[static_cast<int64_t>(i) % shape_.out_channels] : 0.0f;
    }
    ForEachProduct(rows, [&](int64_t in, int64_t weight, int64_t out) {
      sums[out] += double{x[in]} * double{weights[weight]};
    });
    for (size_t i = 0; i < sums.size(); ++i) {
      y[i] = static_cast<float>(options_.relu && sums[i] < 0 ? 0.0 : sums[i]);
    }
  }

  void BackwardData(int64_t rows, const float* dy, const float* weights, float* dx,
                    void* workspace) override {
    std::vector<double> sums(rows * shape_.input_elements(), 0.0);
    ForEachProduct(rows, [&](int64_t in, int64_t weight, int64_t out) {
      sums[in] += double{dy[out]} * double{weights[weight]};
    });
    std::copy(sums.begin(), sums.end(), dx);
  }

  void BackwardWeights(int64_t rows, const float* x, const float* dy, float* dweights, float* dbias,
                       void* workspace) override {
    std::vector<double> weight_sums(shape_.weights(), 0.0);
    ForEachProduct(rows, [&](int64_t in, int64_t weight, int64_t out) {
      weight_sums[weight] += double{dy[out]} * double{x[in]};
    });
    std::copy(weight_sums.begin(), weight_sums.end(), dweights);
    if (!options_.bias) return;
    std::vector<double> bias_sums(shape_.out_channels, 0.0);
    for (int64_t i = 0; i < rows * shape_.output_elements(); ++i) {
      bias_sums[i % shape_.out_channels] += double{dy[i]};
    }
    std::copy(bias_sums.begin(), bias_sums.end(), dbias);
  }

 private:
  // Calls visit(element of x, of the weights, of y) for each product that the convolution sums.
  template <typename Visit>
  void ForEachProduct(int64_t rows, const Visit& visit) const {
    const int64_t ins = shape_.in_channels / shape_.groups;
    const int64_t outs = shape_.out_channels / shape_.groups;
    int64_t out = 0;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t h = 0; h < shape_.out_height(); ++h) {
        for (int64_t w = 0; w < shape_.out_width(); ++w) {
          for (int64_t o = 0; o < shape_.out_channels; ++o, ++out) {
            for (int64_t tap = 0; tap < shape_.kernel * shape_.kernel; ++tap) {
              const int64_t in_h = h * shape_.stride + tap / shape_.kernel - shape_.padding;
              const int64_t in_w = w * shape_.stride + tap % shape_.kernel - shape_.padding;
              if (in_h < 0 || in_h >= shape_.height || in_w < 0 || in_w >= shape_.width) continue;
              const int64_t pixel = (row * shape_.height + in_h) * shape_.width + in_w;
              const int64_t first_in = o / outs * ins;
              for (int64_t i = 0; i < ins; ++i) {
                visit(pixel * shape_.in_channels + first_in + i,
                      (o * ins + i) * shape_.kernel * shape_.kernel + tap, out);
              }
            }
          }
        }
      }
    }
  }

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
};

}  // namespace

std::unique_ptr<Convolution> MakeConvolution(const ConvolutionShape& shape,
                                             const ConvolutionOptions& options) {
  return std::make_unique<ReferenceConvolution>(shape, options);
}

}  // namespace muster::kernels::reference
