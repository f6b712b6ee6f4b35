#include "trainer/graph/operations/convolution.h"

#include <cstddef>
#include <utility>

#include "trainer/graph/operations/activation.h"

namespace muster::nn {
namespace {

using kernels::Activation;

class ConvolutionOperation : public Operation {
 public:
  ConvolutionOperation(std::string name, Tensor* input, Tensor* output,
                       std::shared_ptr<const ConvolutionParts> parts,
                       const kernels::KernelTable& kernels)
      : Operation(std::move(name), {input}, output), parts_(std::move(parts)), kernels_(kernels) {}

  std::string kind() const override {
    return std::string(parts_->linear ? "linear" : "conv2d") + FusedName(parts_->activation);
  }
  std::string description() const override { return parts_->convolution->description(); }
  kernels::DataType compute_type() const override { return parts_->compute_type; }
  Memory memory(uint32_t max_samples) const override {
    const bool activation = parts_->activation != Activation::kNone;
    return {.workspace_bytes = parts_->convolution->workspace_bytes(),
            .input_in_backward = true,
            .output_in_backward = activation,
            .activation_in_backward = activation};
  }
  int64_t forward_flops() const override { return parts_->forward_flops(); }
  bool reads_cast_parameters() const override { return parts_->reads_cast_weights(); }
  Range cast_gradients() const override {
    if (!casts_gradient()) return {};
    const auto elements = static_cast<size_t>(parts_->convolution->weights_elements());
    return {parts_->weight_offset, parts_->weight_offset + elements};
  }

  void Forward(const Call& call) override {
    const kernels::Epilogue epilogue = {.shift = parts_->bias(call),
                                        .activation = parts_->activation};
    parts_->convolution->Forward(call.samples, input()->data, parts_->weights(call), epilogue,
                                 output()->data, call.workspace);
  }

  void BackwardActivation(const Call& call) override {
    ActivationBackward(kernels_, parts_->activation, call.samples, *output());
  }

  void BackwardParameters(const Call& call) override {
    float* dbias = parts_->bias_offset ? call.gradients + *parts_->bias_offset : nullptr;
    void* dweights = call.gradients + parts_->weight_offset;
    if (casts_gradient()) {
      dweights = static_cast<std::byte*>(call.cast_gradients) +
                 parts_->weight_offset * kernels::SizeOf(parts_->convolution->dweights_type());
    }
    parts_->convolution->BackwardWeights(call.samples, input()->data, output()->gradient, dweights,
                                         dbias, call.workspace);
  }

  void BackwardData(const Call& call, size_t, void* dx) override {
    parts_->convolution->BackwardData(call.samples, output()->gradient, parts_->weights(call), dx,
                                      call.workspace);
  }

  int64_t GradientStride(size_t) const override {
    return parts_->compact_data_gradient ? parts_->shape.stride : 1;
  }

 private:
  bool casts_gradient() const {
    return parts_->convolution->dweights_type() != kernels::DataType::kFloat32;
  }

  const std::shared_ptr<const ConvolutionParts> parts_;
  const kernels::KernelTable& kernels_;
};

}  // namespace

std::unique_ptr<Operation> MakeConvolutionOperation(std::string name, Tensor* input, Tensor* output,
                                                    std::shared_ptr<const ConvolutionParts> parts,
                                                    const kernels::KernelTable& kernels) {
  return std::make_unique<ConvolutionOperation>(std::move(name), input, output, std::move(parts),
                                                kernels);
}

}  // namespace muster::nn
