#include "trainer/graph/operations/pooling.h"

#include <cstddef>
#include <utility>

namespace muster::nn {
namespace {

class MaxPoolOperation : public Operation {
 public:
  MaxPoolOperation(std::string name, Tensor* input, Tensor* output, const MaxPool2d& layer,
                   bool relu, const kernels::KernelTable& kernels)
      : Operation(std::move(name), {input}, output),
        layer_(layer),
        relu_(relu),
        kernels_(kernels) {}

  std::string kind() const override { return relu_ ? "relu + max_pool2d" : "max_pool2d"; }
  std::string description() const override { return kernels_.name; }
  Memory memory(uint32_t max_samples) const override {
    return {.saved_bytes = max_samples * static_cast<size_t>(output()->elements()),
            .gradient_over_input = true};
  }
  void Forward(const Call& call) override {
    kernels_.max_pool_forward(Shape(call), input()->data, output()->data, choice());
  }
  void BackwardData(const Call& call, size_t, void* dx) override {
    kernels_.max_pool_backward(Shape(call), output()->gradient, choice(), dx);
  }

 private:
  uint8_t* choice() const { return static_cast<uint8_t*>(saved()); }
  kernels::PoolShape Shape(const Call& call) const {
    return {.samples = call.samples,
            .height = input()->shape.height,
            .width = input()->shape.width,
            .channels = input()->shape.channels,
            .relu = relu_,
            .kernel = layer_.kernel,
            .stride = layer_.stride,
            .padding = layer_.padding,
            .type = output()->type};
  }

  const MaxPool2d layer_;
  const bool relu_;
  const kernels::KernelTable& kernels_;
};

class AveragePoolOperation : public Operation {
 public:
  AveragePoolOperation(std::string name, Tensor* input, Tensor* output, int64_t kernel_height,
                       int64_t kernel_width, int64_t stride, const kernels::KernelTable& kernels)
      : Operation(std::move(name), {input}, output),
        kernel_height_(kernel_height),
        kernel_width_(kernel_width),
        stride_(stride),
        kernels_(kernels) {}

  std::string kind() const override { return "avg_pool2d"; }
  std::string description() const override { return kernels_.name; }
  Memory memory(uint32_t max_samples) const override { return {.gradient_over_input = true}; }
  void Forward(const Call& call) override {
    kernels_.average_pool_forward(Shape(call), input()->data, output()->data);
  }
  void BackwardData(const Call& call, size_t, void* dx) override {
    kernels_.average_pool_backward(Shape(call), output()->gradient, dx);
  }

 private:
  kernels::AveragePoolShape Shape(const Call& call) const {
    return {.samples = call.samples,
            .height = input()->shape.height,
            .width = input()->shape.width,
            .channels = input()->shape.channels,
            .kernel_height = kernel_height_,
            .kernel_width = kernel_width_,
            .stride = stride_,
            .type = output()->type};
  }

  const int64_t kernel_height_;
  const int64_t kernel_width_;
  const int64_t stride_;
  const kernels::KernelTable& kernels_;
};

}  // namespace

std::unique_ptr<Operation> MakeMaxPoolOperation(std::string name, Tensor* input, Tensor* output,
                                                const MaxPool2d& layer, bool relu,
                                                const kernels::KernelTable& kernels) {
  return std::make_unique<MaxPoolOperation>(std::move(name), input, output, layer, relu, kernels);
}

std::unique_ptr<Operation> MakeAveragePoolOperation(std::string name, Tensor* input, Tensor* output,
                                                    int64_t kernel_height, int64_t kernel_width,
                                                    int64_t stride,
                                                    const kernels::KernelTable& kernels) {
  return std::make_unique<AveragePoolOperation>(std::move(name), input, output, kernel_height,
                                                kernel_width, stride, kernels);
}

}  // namespace muster::nn
