#include "trainer/graph/operations/residual.h"

#include <cstddef>
#include <utility>

#include "trainer/graph/operations/activation.h"

namespace muster::nn {
namespace {

using kernels::Activation;

class AddOperation : public Operation {
 public:
  AddOperation(std::string name, Tensor* branch, Tensor* shortcut, Tensor* output,
               Activation activation, const StochasticBlock* block,
               const kernels::KernelTable& kernels)
      : Operation(std::move(name), {branch, shortcut}, output),
        activation_(activation),
        block_(block),
        kernels_(kernels) {}

  std::string kind() const override {
    return std::string(block_ != nullptr ? "stochastic_depth + add" : "add") +
           FusedName(activation_);
  }
  std::string description() const override { return kernels_.name; }
  Memory memory(uint32_t max_samples) const override {
    const bool activation = activation_ != Activation::kNone;
    return {.output_in_backward = activation,
            .output_over_input = true,
            .activation_in_backward = activation};
  }

  void Forward(const Call& call) override {
    const bool dropped = call.training && block_ != nullptr && block_->dropped;
    kernels_.add_forward(output()->type, OutputCount(call), dropped ? nullptr : branch().data,
                         Factor(call), shortcut().data, activation_, output()->data);
  }
  void BackwardActivation(const Call& call) override {
    ActivationBackward(kernels_, activation_, call.samples, *output());
  }
  // Needed only for a scaled branch; never called for a dropped one.
  void BackwardData(const Call& call, size_t, void* dx) override {
    kernels_.scaled_copy(output()->type, OutputCount(call), Factor(call), output()->gradient, dx);
  }
  bool PassesGradient(size_t input) const override { return input == 1 || block_ == nullptr; }

 private:
  const Tensor& branch() const { return *inputs()[0]; }
  const Tensor& shortcut() const { return *inputs()[1]; }
  const float* Factor(const Call& call) const {
    return block_ == nullptr ? nullptr : block_->factor(call.training);
  }

  const Activation activation_;
  const StochasticBlock* const block_;
  const kernels::KernelTable& kernels_;
};

}  // namespace

std::unique_ptr<Operation> MakeAddOperation(std::string name, Tensor* branch, Tensor* shortcut,
                                            Tensor* output, Activation activation,
                                            const StochasticBlock* block,
                                            const kernels::KernelTable& kernels) {
  return std::make_unique<AddOperation>(std::move(name), branch, shortcut, output, activation,
                                        block, kernels);
}

}  // namespace muster::nn
