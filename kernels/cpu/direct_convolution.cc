#include "kernels/cpu/direct_convolution.h"

#include <string>

#include "kernels/cpu/epilogue.h"

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
               .out_channels = shape.out_channels},
        kernels_(kernels),
        epilogue_(kernels, DataType::kFloat32, shape.out_channels) {}

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

  void Forward(int64_t rows, const void* x, const float* weights, const Epilogue& epilogue, void* y,
               void* workspace) override {
    DirectConvolutionShape shape = Shape(rows);
    const bool plain = epilogue.scale == nullptr && epilogue.addend == nullptr &&
                       epilogue.activation != Activation::kRelu6;
    shape.relu = plain && epilogue.activation == Activation::kRelu;
    kernels_.direct_convolution_forward(shape, static_cast<const float*>(x), weights,
                                        plain ? epilogue.shift : nullptr, static_cast<float*>(y),
                                        static_cast<float*>(workspace));
    if (!plain) {
      epilogue_.Run(rows * shape.height * shape.width, epilogue, y);
    }
  }

  // DirectConvolutionFits excludes layers that need it.
  void BackwardData(int64_t rows, const void* dy, const float* weights, void* dx,
                    void* workspace) override {}

  void BackwardWeights(int64_t rows, const void* x, const void* dy, float* dweights, float* dbias,
                       void* workspace) override {
    kernels_.direct_convolution_backward_weights(Shape(rows), static_cast<const float*>(x),
                                                 static_cast<const float*>(dy), dweights, dbias,
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
  const EpiloguePass epilogue_;
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
