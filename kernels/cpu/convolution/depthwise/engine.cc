// The kernels use one type for all activations of a call, and round operands to the compute type
// when they load them. If x and y have different types, or one that does not fit the compute type,
// activations are float32. Threads divide the samples.
#include "kernels/cpu/convolution/depthwise/engine.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace muster::kernels::cpu {
namespace {

DataType CommonType(const ConvolutionOptions& options) {
  const bool computes =
      options.compute_type == options.x_type || options.compute_type == DataType::kFloat32;
  return options.x_type == options.y_type && computes ? options.x_type : DataType::kFloat32;
}

class DepthwiseEngine final : public ConvolutionEngine {
 public:
  DepthwiseEngine(const ConvolutionShape& shape, const ConvolutionOptions& options,
                  const KernelTable& kernels)
      : shape_{.height = shape.height,
               .width = shape.width,
               .channels = shape.in_channels,
               .kernel = shape.kernel,
               .stride = shape.stride,
               .padding = shape.padding,
               .type = CommonType(options),
               .compute_type = options.compute_type},
        training_(options.training),
        kernels_(kernels),
        parts_(options.threads) {}

  Types types() const override {
    return {shape_.type, shape_.type, shape_.type, shape_.type, shape_.compute_type};
  }
  std::string description() const override {
    return absl::StrCat("depthwise:", kernels_.name, ":", NameOf(shape_.compute_type));
  }
  int64_t weights_elements() const override { return shape_.weights_elements(); }
  std::string weights_layout() const override { return "hwc, channels by 16"; }
  void ForEachWeight(absl::FunctionRef<void(int64_t, int64_t)> visit) const override {
    const int64_t taps = shape_.kernel * shape_.kernel;
    for (int64_t c = 0; c < shape_.channels; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        visit(c * taps + tap, tap * shape_.padded_channels() + c);
      }
    }
  }
  // Sums of all slices except the first.
  size_t workspace_bytes() const override {
    return training_ ? SumsBytes() * (parts_.count() - 1) : 0;
  }

  void Forward(int64_t samples, const void* x, const float* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    InParts(samples, [&](int slice, int64_t sample, const DepthwiseConvolutionShape& shape) {
      const int64_t out = sample * shape.output_elements();
      Epilogue own = epilogue;
      if (own.addend != nullptr) own.addend = Element(own.addend, out);
      kernels_.depthwise_convolution_forward(shape, Element(x, sample * shape.input_elements()),
                                             weights, own, Element(y, out));
    });
  }

  void BackwardData(int64_t samples, const void* dy, const float* weights, void* dx,
                    void* workspace) override {
    InParts(samples, [&](int slice, int64_t sample, const DepthwiseConvolutionShape& shape) {
      kernels_.depthwise_convolution_backward_data(
          shape, Element(dy, sample * shape.output_elements()), weights,
          Element(dx, sample * shape.input_elements()));
    });
  }

  // The first slice writes its sums to the result, the others to the workspace.
  void BackwardWeights(int64_t samples, const void* x, const void* dy, float* dweights,
                       float* dbias, void* workspace) override {
    const auto sums = [&](int slice) {
      return reinterpret_cast<float*>(static_cast<char*>(workspace) + SumsBytes() * (slice - 1));
    };
    InParts(samples, [&](int slice, int64_t sample, const DepthwiseConvolutionShape& shape) {
      float* const to = slice == 0 ? dweights : sums(slice);
      float* const bias_to = slice == 0 ? dbias : to + weights_elements();
      kernels_.depthwise_convolution_backward_weights(
          shape, Element(x, sample * shape.input_elements()),
          Element(dy, sample * shape.output_elements()), to, dbias == nullptr ? nullptr : bias_to);
    });
    for (int slice = 1; slice < parts_.count(); ++slice) {
      const float* const from = sums(slice);
      kernels_.accumulate(DataType::kFloat32, weights_elements(), from, dweights);
      if (dbias == nullptr) continue;
      kernels_.accumulate(DataType::kFloat32, shape_.channels, from + weights_elements(), dbias);
    }
  }

 private:
  size_t SumsBytes() const {
    return RoundUp((weights_elements() + shape_.channels) * sizeof(float));
  }

  const void* Element(const void* array, int64_t index) const {
    return static_cast<const char*>(array) + index * SizeOf(shape_.type);
  }
  void* Element(void* array, int64_t index) const {
    return static_cast<char*>(array) + index * SizeOf(shape_.type);
  }

  // Calls run(slice, its first sample, the shape with its samples).
  template <typename Run>
  void InParts(int64_t samples, const Run& run) const {
    parts_.Run([&](int slice) {
      const int64_t begin = samples * slice / parts_.count();
      DepthwiseConvolutionShape shape = shape_;
      shape.samples = samples * (slice + 1) / parts_.count() - begin;
      run(slice, begin, shape);
    });
  }

  const DepthwiseConvolutionShape shape_;
  const bool training_;
  const KernelTable& kernels_;
  const Parts parts_;
};

}  // namespace

std::unique_ptr<ConvolutionEngine> MakeDepthwiseEngine(const ConvolutionShape& shape,
                                                       const ConvolutionOptions& options,
                                                       const KernelTable& kernels) {
  return std::make_unique<DepthwiseEngine>(shape, options, kernels);
}

absl::StatusOr<std::unique_ptr<Convolution>> MakeDepthwiseConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const KernelTable& kernels) {
  if (!shape.valid() || !shape.depthwise() || !options.valid()) {
    return absl::InvalidArgumentError("invalid depthwise convolution shape or options");
  }
  return LowerConvolution(shape, options, kernels, MakeDepthwiseEngine(shape, options, kernels));
}

}  // namespace muster::kernels::cpu
