#include "trainer/graph/operations/activation.h"

#include <cstddef>
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
  Memory memory(uint32_t max_samples) const override {
    return {.output_in_backward = true, .output_over_input = true, .activation_in_backward = true};
  }
  void Forward(const Call& call) override {
    kernels_.activation_forward(output()->type, activation_, OutputCount(call), input()->data,
                                output()->data);
  }
  void BackwardActivation(const Call& call) override {
    ActivationBackward(kernels_, activation_, call.samples, *output());
  }
  bool PassesGradient(size_t) const override { return true; }

 private:
  const Activation activation_;
  const kernels::KernelTable& kernels_;
};

class DropoutOperation : public Operation {
 public:
  DropoutOperation(std::string name, Tensor* input, Tensor* output, double probability,
                   uint32_t index, kernels::Device& device)
      : Operation(std::move(name), {input}, output),
        probability_(static_cast<float>(probability)),
        index_(index),
        device_(device) {}

  std::string kind() const override { return "dropout"; }
  std::string description() const override { return device_.kernels().name; }
  std::vector<std::string> recomputed() const override { return {"random mask"}; }
  Memory memory(uint32_t max_samples) const override {
    return {.output_over_input = true, .activation_in_backward = true};
  }
  void Forward(const Call& call) override {
    if (call.training) {
      Apply(call, input()->data, output()->data);
    } else if (output()->data != input()->data) {
      device_.Copy(output()->data, input()->data, output()->bytes(call.samples));
    }
  }
  void BackwardActivation(const Call& call) override {
    Apply(call, output()->gradient, output()->gradient);
  }
  bool PassesGradient(size_t) const override { return true; }

 private:
  void Apply(const Call& call, const void* x, void* y) const {
    device_.kernels().dropout(output()->type, {.layer = index_, .probability = probability_},
                              call.draw, call.samples, output()->elements(), x, y);
  }

  const float probability_;
  const uint32_t index_;
  kernels::Device& device_;
};

class CastOperation : public Operation {
 public:
  CastOperation(std::string name, Tensor* input, Tensor* output,
                const kernels::KernelTable& kernels)
      : Operation(std::move(name), {input}, output), kernels_(kernels) {}

  std::string kind() const override { return "cast"; }
  std::string description() const override { return kernels_.name; }
  Memory memory(uint32_t max_samples) const override { return {}; }
  void Forward(const Call& call) override {
    kernels_.cast(input()->type, input()->data, 1, output()->type, output()->data,
                  OutputCount(call));
  }
  void BackwardData(const Call& call, size_t, void* dx) override {
    kernels_.cast(output()->type, output()->gradient, 1, input()->type, dx, OutputCount(call));
  }

 private:
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
                                                kernels::Device& device) {
  return std::make_unique<DropoutOperation>(std::move(name), input, output, probability, index,
                                            device);
}

std::unique_ptr<Operation> MakeCastOperation(std::string name, Tensor* input, Tensor* output,
                                             const kernels::KernelTable& kernels) {
  return std::make_unique<CastOperation>(std::move(name), input, output, kernels);
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

void ActivationBackward(const kernels::KernelTable& kernels, Activation activation,
                        uint32_t samples, const Tensor& y) {
  if (activation == Activation::kNone) return;
  kernels.activation_backward(y.type, activation, samples * static_cast<size_t>(y.elements()),
                              y.data, y.gradient, y.gradient);
}

}  // namespace muster::nn
