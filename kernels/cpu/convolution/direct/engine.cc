#include "kernels/cpu/convolution/direct/engine.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::kernels::cpu {
namespace {

constexpr int64_t kTaps = 9;
constexpr DataType kType = DataType::kFloat32;

class DirectEngine final : public ConvolutionEngine {
 public:
  DirectEngine(const ConvolutionShape& shape, const KernelTable& kernels, const DenseKernels& dense)
      : shape_{.height = shape.height,
               .width = shape.width,
               .in_channels = shape.in_channels,
               .out_channels = shape.out_channels},
        kernels_(kernels),
        dense_(dense),
        zeros_(shape.out_channels, 0.0f),
        ones_(shape.out_channels, 1.0f) {}

  Types types() const override { return {kType, kType, kType, kType, kType}; }
  std::string description() const override { return absl::StrCat("direct:", dense_.name); }
  int64_t weights_elements() const override {
    return kTaps * shape_.in_channels * shape_.out_channels;
  }
  std::string weights_layout() const override { return "hwio"; }
  void ForEachWeight(absl::FunctionRef<void(int64_t, int64_t)> visit) const override {
    for (int64_t o = 0; o < shape_.out_channels; ++o) {
      for (int64_t i = 0; i < shape_.in_channels; ++i) {
        for (int64_t tap = 0; tap < kTaps; ++tap) {
          visit((o * shape_.in_channels + i) * kTaps + tap,
                (tap * shape_.in_channels + i) * shape_.out_channels + o);
        }
      }
    }
  }
  size_t workspace_bytes() const override { return shape_.scratch_elements() * sizeof(float); }

  void Forward(int64_t samples, const void* x, const float* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    DirectConvolutionShape shape = Shape(samples);
    const bool fused = epilogue.scale == nullptr && epilogue.addend == nullptr &&
                       epilogue.activation != Activation::kRelu6;
    shape.relu = fused && epilogue.activation == Activation::kRelu;
    dense_.direct_forward(shape, static_cast<const float*>(x), weights,
                          fused ? epilogue.shift : nullptr, static_cast<float*>(y),
                          static_cast<float*>(workspace));
    if (!fused) ApplyEpilogue(samples * shape.height * shape.width, epilogue, y);
  }

  // Never called: DirectEngineFits excludes layers that need it.
  void BackwardData(int64_t samples, const void* dy, const float* weights, void* dx,
                    void* workspace) override {}

  void BackwardWeights(int64_t samples, const void* x, const void* dy, float* dweights,
                       float* dbias, void* workspace) override {
    dense_.direct_backward_weights(Shape(samples), static_cast<const float*>(x),
                                   static_cast<const float*>(dy), dweights, dbias,
                                   static_cast<float*>(workspace));
  }

 private:
  DirectConvolutionShape Shape(int64_t samples) const {
    DirectConvolutionShape shape = shape_;
    shape.samples = samples;
    return shape;
  }

  // Runs as a separate pass over the sums, in place.
  void ApplyEpilogue(int64_t pixels, const Epilogue& epilogue, void* y) const {
    if (epilogue.scale != nullptr || epilogue.shift != nullptr) {
      kernels_.batch_norm_apply({.samples = pixels,
                                 .channels = shape_.out_channels,
                                 .activation = epilogue.activation,
                                 .type = kType},
                                y, epilogue.scale != nullptr ? epilogue.scale : ones_.data(),
                                epilogue.shift != nullptr ? epilogue.shift : zeros_.data(),
                                {epilogue.addend}, y, nullptr);
    } else if (epilogue.addend != nullptr) {
      kernels_.add_forward(kType, pixels * shape_.out_channels, y, nullptr, epilogue.addend,
                           epilogue.activation, y);
    } else {
      kernels_.activation_forward(kType, epilogue.activation, pixels * shape_.out_channels, y, y);
    }
  }

  const DirectConvolutionShape shape_;
  const KernelTable& kernels_;
  const DenseKernels& dense_;
  const std::vector<float> zeros_;
  const std::vector<float> ones_;
};

}  // namespace

bool DirectEngineFits(const ConvolutionShape& shape, const ConvolutionOptions& options) {
  return options.x_type == kType && options.y_type == kType && options.compute_type == kType &&
         shape.in_channels <= 4 && shape.out_channels % 16 == 0 && shape.kernel == 3 &&
         shape.stride == 1 && shape.padding == 1 && shape.groups == 1 && !options.data_gradient;
}

std::unique_ptr<ConvolutionEngine> MakeDirectEngine(const ConvolutionShape& shape,
                                                    const KernelTable& kernels,
                                                    const DenseKernels& dense) {
  return std::make_unique<DirectEngine>(shape, kernels, dense);
}

}  // namespace muster::kernels::cpu
