#include "kernels/cuda/counting/counted_convolution.h"

#include <string>

#include "kernels/cpu/convolution/depthwise/engine.h"
#include "kernels/cuda/convolution/cublaslt/linear.h"
#include "kernels/cuda/convolution/layer_runtime.h"
#include "kernels/cuda/counting/counted_kernels.h"
#include "kernels/launch_log.h"

namespace muster::kernels {
namespace {

class CountedConvolution final : public Convolution {
 public:
  CountedConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options)
      : shape_(shape),
        options_(options),
        linear_(cuda::IsLinear(shape)),
        kernels_(CountedKernels()) {}

  int64_t weights_elements() const override { return shape_.weights(); }
  std::string weights_layout() const override { return linear_ ? "oi" : "ohwi"; }
  DataType weights_type() const override { return options_.compute_type; }
  DataType dweights_type() const override {
    return linear_ ? DataType::kFloat32 : options_.compute_type;
  }
  bool casts_x() const override { return !linear_ && options_.x_type != options_.compute_type; }
  std::string description() const override { return linear_ ? "cublaslt" : "cudnn"; }
  size_t workspace_bytes() const override { return 0; }
  void ImportWeights(const float*, float*) const override {}
  void ExportWeights(const float*, float*) const override {}

  void Forward(int64_t samples, const void*, const void*, const Epilogue& epilogue, void* y,
               void*) override {
    if (samples == 0) return;
    const int64_t outputs = samples * shape_.output_elements();
    CastOperand(options_.x_type, samples * shape_.input_elements());
    const DataType written = WrittenAs(options_.y_type);
    const bool direct = written == options_.y_type;
    const bool empty = epilogue.scale == nullptr && epilogue.shift == nullptr &&
                       epilogue.addend == nullptr && epilogue.activation == Activation::kNone;
    const bool fused = direct && epilogue.scale == nullptr &&
                       epilogue.activation != Activation::kRelu6 &&
                       (linear_ || epilogue.shift != nullptr);
    if (fused && epilogue.shift != nullptr) {
      Cast(DataType::kFloat32, linear_ ? written : options_.compute_type, shape_.out_channels);
    }
    const bool addend = fused && epilogue.addend != nullptr;
    Product(linear_ ? "cublaslt forward" : "cudnn forward", samples,
            Bytes(options_.compute_type, shape_.weights()) +
                Bytes(options_.compute_type, samples * InputsRead()) +
                Bytes(written, outputs) * (addend ? 2 : 1));
    if (fused || (direct && empty)) return;
    CountedConvolutionKernels().apply_epilogue(outputs / shape_.out_channels, shape_.out_channels,
                                               written, y, epilogue, options_.y_type, y);
  }

  void BackwardData(int64_t samples, const void*, const void*, void*, void*) override {
    if (samples == 0) return;
    const ConvolutionShape shape = options_.compact_data_gradient ? shape_.Compact() : shape_;
    const int64_t inputs = samples * shape.input_elements();
    CastOperand(options_.y_type, samples * shape_.output_elements());
    const DataType written = WrittenAs(options_.x_type);
    Product(linear_ ? "cublaslt backward data" : "cudnn backward data", samples,
            Bytes(options_.compute_type, shape_.weights()) +
                Bytes(options_.compute_type, samples * shape_.output_elements()) +
                Bytes(written, inputs));
    Cast(written, options_.x_type, inputs);
  }

  void BackwardWeights(int64_t samples, const void*, const void* dy, void*, float* dbias,
                       void*) override {
    if (samples == 0) return;
    const int64_t outputs = samples * shape_.output_elements();
    CastOperand(options_.x_type, samples * shape_.input_elements());
    CastOperand(options_.y_type, outputs);
    Product(linear_ ? "cublaslt backward weights" : "cudnn backward weights", samples,
            Bytes(options_.compute_type, samples * InputsRead()) +
                Bytes(options_.compute_type, outputs) + Bytes(dweights_type(), shape_.weights()));
    if (dbias == nullptr || linear_) return;  // cuBLASLt computes dbias with the product
    CountedConvolutionKernels().column_sums(options_.compute_type, outputs / shape_.out_channels,
                                            shape_.out_channels, dy, dbias);
  }

 private:
  static double Bytes(DataType type, int64_t elements) {
    return static_cast<double>(elements) * static_cast<double>(SizeOf(type));
  }
  // Elements of one sample's input that the windows cover: a kernel smaller than the stride skips
  // rows and columns.
  int64_t InputsRead() const {
    if (shape_.kernel >= shape_.stride) return shape_.input_elements();
    return shape_.out_height() * shape_.out_width() * shape_.kernel * shape_.kernel *
           shape_.in_channels;
  }
  // The type in which the library writes an output of `type`.
  DataType WrittenAs(DataType type) const {
    if (type == options_.compute_type) return type;
    return linear_ ? DataType::kFloat32 : options_.compute_type;
  }
  void Cast(DataType from, DataType to, int64_t elements) const {
    if (from == to) return;
    // Aligned addresses.
    kernels_.cast(from, nullptr, 1, to, nullptr, static_cast<size_t>(elements));
  }
  void CastOperand(DataType type, int64_t elements) const {
    Cast(type, options_.compute_type, elements);
  }
  void Product(const char* call, int64_t samples, double bytes) const {
    const auto products = static_cast<double>(samples * shape_.output_elements());
    LaunchLog::State(
        {.bytes = bytes, .flops = 2 * products * static_cast<double>(shape_.fan_in())});
    LaunchLog::Record(call);
  }

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const bool linear_;
  const KernelTable& kernels_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeCountedConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options) {
  if (!shape.valid() || !options.valid()) return cuda::InvalidLayerError(shape);
  if (!shape.depthwise()) return std::make_unique<CountedConvolution>(shape, options);
  ConvolutionOptions single_thread = options;
  single_thread.threads = 1;
  return cpu::MakeDepthwiseConvolution(shape, single_thread, CountedKernels());
}

}  // namespace muster::kernels
