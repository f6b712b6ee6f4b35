#include "worker/nn/operations/convolution.h"

#include <utility>

namespace muster::nn {
namespace {

class ConvolutionOperation : public Operation {
 public:
  ConvolutionOperation(std::string name, Tensor* input, Tensor* output, ConvolutionParts parts,
                       const kernels::KernelTable& kernels)
      : Operation(std::move(name), {input}, output), parts_(std::move(parts)), kernels_(kernels) {}

  std::string kind() const override {
    return std::string(parts_.linear ? "linear" : "conv2d") + (parts_.relu ? " + relu" : "");
  }
  std::string description() const override { return parts_.convolution->description(); }
  Memory memory(uint32_t max_rows) const override {
    return {.workspace_bytes = parts_.convolution->workspace_bytes(),
            .inputs_in_backward = true,
            .output_in_backward = parts_.relu,
            .activation_in_backward = parts_.relu};
  }
  int64_t forward_flops() const override {
    return 2 * parts_.shape.output_elements() * parts_.shape.fan_in();
  }

  void Forward(const Call& call) override {
    const kernels::Epilogue epilogue = {
        .shift = parts_.bias_offset ? call.parameters + *parts_.bias_offset : nullptr,
        .activation = parts_.relu ? kernels::Activation::kRelu : kernels::Activation::kNone};
    parts_.convolution->Forward(call.rows, input()->data, call.parameters + parts_.weight_offset,
                                epilogue, output()->data, call.workspace);
  }

  void BackwardActivation(const Call& call) override {
    if (!parts_.relu) return;
    kernels_.relu_backward(OutputCount(call), output()->data, output()->gradient,
                           output()->gradient);
  }

  void BackwardParameters(const Call& call) override {
    float* dbias = parts_.bias_offset ? call.gradients + *parts_.bias_offset : nullptr;
    parts_.convolution->BackwardWeights(call.rows, input()->data, output()->gradient,
                                        call.gradients + parts_.weight_offset, dbias,
                                        call.workspace);
  }

  void BackwardData(const Call& call, size_t, float* dx) override {
    parts_.convolution->BackwardData(call.rows, output()->gradient,
                                     call.parameters + parts_.weight_offset, dx, call.workspace);
  }

 private:
  const ConvolutionParts parts_;
  const kernels::KernelTable& kernels_;
};

}  // namespace

std::unique_ptr<Operation> MakeConvolutionOperation(std::string name, Tensor* input, Tensor* output,
                                                    ConvolutionParts parts,
                                                    const kernels::KernelTable& kernels) {
  return std::make_unique<ConvolutionOperation>(std::move(name), input, output, std::move(parts),
                                                kernels);
}

}  // namespace muster::nn
