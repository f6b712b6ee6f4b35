#include "worker/nn/operations/activation.h"

#include <algorithm>
#include <utility>

namespace muster::nn {
namespace {

using kernels::Activation;

class ActivationOperation : public Operation {
 public:
  ActivationOperation(std::string name, Tensor* input, Tensor* output, Activation activation,
                      const kernels::KernelTable& kernels)
      : Operation(std::move(name), {input}, output), activation_(activation), kernels_(kernels) {}

  std::string kind() const override { return activation_ == Activation::kRelu6 ? "relu6" : "relu"; }
  std::string description() const override { return kernels_.name; }
  Memory memory(uint32_t max_rows) const override {
    return {.output_in_backward = true, .output_over_input = true, .activation_in_backward = true};
  }
  void Forward(const Call& call) override {
    const auto forward =
        activation_ == Activation::kRelu6 ? kernels_.relu6_forward : kernels_.relu_forward;
    forward(OutputCount(call), input()->data, output()->data);
  }
  void BackwardActivation(const Call& call) override {
    ActivationBackward(kernels_, activation_, OutputCount(call), output()->data,
                       output()->gradient);
  }
  bool PassesGradient(size_t) const override { return true; }

 private:
  const Activation activation_;
  const kernels::KernelTable& kernels_;
};

class DropoutOperation : public Operation {
 public:
  DropoutOperation(std::string name, Tensor* input, Tensor* output, double probability,
                   uint32_t index, const kernels::KernelTable& kernels)
      : Operation(std::move(name), {input}, output),
        probability_(static_cast<float>(probability)),
        index_(index),
        kernels_(kernels) {}

  std::string kind() const override { return "dropout"; }
  std::string description() const override { return kernels_.name; }
  // The mask is drawn again in backward.
  Memory memory(uint32_t max_rows) const override {
    return {.output_over_input = true, .activation_in_backward = true};
  }
  void Forward(const Call& call) override {
    if (call.training) {
      Apply(call, input()->data, output()->data);
    } else if (output()->data != input()->data) {
      std::copy_n(input()->data, OutputCount(call), output()->data);
    }
  }
  void BackwardActivation(const Call& call) override {
    Apply(call, output()->gradient, output()->gradient);
  }
  bool PassesGradient(size_t) const override { return true; }

 private:
  void Apply(const Call& call, const float* x, float* y) const {
    const kernels::DropoutMask mask = {
        .key = kernels::DerivePhiloxKey(call.step.seed, call.step.step),
        .layer = index_,
        .first_row = call.step.first_row,
        .probability = probability_};
    kernels_.dropout(mask, call.rows, output()->elements(), x, y);
  }

  const float probability_;
  const uint32_t index_;
  const kernels::KernelTable& kernels_;
};

}  // namespace

std::unique_ptr<Operation> MakeActivationOperation(std::string name, Tensor* input, Tensor* output,
                                                   Activation activation,
                                                   const kernels::KernelTable& kernels) {
  return std::make_unique<ActivationOperation>(std::move(name), input, output, activation, kernels);
}

std::unique_ptr<Operation> MakeDropoutOperation(std::string name, Tensor* input, Tensor* output,
                                                double probability, uint32_t index,
                                                const kernels::KernelTable& kernels) {
  return std::make_unique<DropoutOperation>(std::move(name), input, output, probability, index,
                                            kernels);
}

const char* FusedName(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return "";
    case Activation::kRelu:
      return " + relu";
    case Activation::kRelu6:
      return " + relu6";
  }
  return "";
}

void ActivationBackward(const kernels::KernelTable& kernels, Activation activation, size_t count,
                        const float* y, float* dy) {
  if (activation == Activation::kRelu) kernels.relu_backward(count, y, dy, dy);
  if (activation == Activation::kRelu6) kernels.relu6_backward(count, y, dy, dy);
}

}  // namespace muster::nn
