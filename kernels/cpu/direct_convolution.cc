#include "kernels/cpu/direct_convolution.h"

#include <string>

namespace muster::kernels::cpu {
namespace {

constexpr int64_t kTaps = 9;

class DirectConvolution : public Convolution {
 public:
  DirectConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options,
                    const KernelTable& kernels)
      : shape_{.height = shape.height,
               .width = shape.width,
               .in_channels = shape.in_channels,
               .out_channels = shape.out_channels,
               .relu = options.relu},
        kernels_(kernels) {}

  int64_t weights_elements() const override {
    return kTaps * shape_.in_channels * shape_.out_channels;
  }
  std::string weights_layout() const override { return "hwio"; }
  std::string description() const override { return std::string("direct:") + kernels_.name; }
  size_t workspace_bytes() const override { return shape_.scratch_elements() * sizeof(float); }

  void ImportWeights(const float* canonical, float* weights) const override {
    ForEachWeight([&](int64_t oihw, int64_t hwio) { weights[hwio] = canonical[oihw]; });
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    ForEachWeight([&](int64_t oihw, int64_t hwio) { canonical[oihw] = weights[hwio]; });
  }

  void Forward(int64_t rows, const float* x, const float* weights, const float* bias, float* y,
               void* workspace) override {
    kernels_.direct_convolution_forward(Shape(rows), x, weights, bias, y,
                                        static_cast<float*>(workspace));
  }

  // DirectConvolutionFits excludes layers that need it.
  void BackwardData(int64_t rows, const float* dy, const float* weights, float* dx,
                    void* workspace) override {}

  void BackwardWeights(int64_t rows, const float* x, const float* dy, float* dweights, float* dbias,
                       void* workspace) override {
    kernels_.direct_convolution_backward_weights(Shape(rows), x, dy, dweights, dbias,
                                                 static_cast<float*>(workspace));
  }

 private:
  DirectConvolutionShape Shape(int64_t rows) const {
    DirectConvolutionShape shape = shape_;
    shape.rows = rows;
    return shape;
  }

  template <typename Visit>
  void ForEachWeight(const Visit& visit) const {
    for (int64_t o = 0; o < shape_.out_channels; ++o) {
      for (int64_t i = 0; i < shape_.in_channels; ++i) {
        for (int64_t tap = 0; tap < kTaps; ++tap) {
          visit((o * shape_.in_channels + i) * kTaps + tap,
                (tap * shape_.in_channels + i) * shape_.out_channels + o);
        }
      }
    }
  }

  const DirectConvolutionShape shape_;
  const KernelTable& kernels_;
};

}  // namespace

bool DirectConvolutionFits(const ConvolutionShape& shape, const ConvolutionOptions& options) {
  return shape.in_channels <= 4 && shape.out_channels % 16 == 0 && shape.kernel == 3 &&
         shape.stride == 1 && shape.padding == 1 && shape.groups == 1 && !options.data_gradient;
}

std::unique_ptr<Convolution> MakeDirectConvolution(const ConvolutionShape& shape,
                                                   const ConvolutionOptions& options,
                                                   const KernelTable& kernels) {
  return std::make_unique<DirectConvolution>(shape, options, kernels);
}

}  // namespace muster::kernels::cpu
