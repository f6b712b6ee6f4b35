#include "worker/nn/operation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace muster::nn {
namespace {

using kernels::KernelTable;

class ConvolutionOperation : public Operation {
 public:
  ConvolutionOperation(std::string name, Tensor* input, Tensor* output, ConvolutionParts parts,
                       const KernelTable& kernels)
      : Operation(std::move(name), input, output), parts_(std::move(parts)), kernels_(kernels) {}

  std::string description() const override { return parts_.convolution->description(); }
  Memory memory(uint32_t max_rows) const override {
    return {.workspace_bytes = parts_.convolution->workspace_bytes(),
            .input_in_backward = true,
            .output_in_backward = parts_.relu};
  }
  int64_t parameter_offset() const override { return static_cast<int64_t>(parts_.weight_offset); }

  void Forward(const Call& call) override {
    parts_.convolution->Forward(call.rows, input()->data, call.parameters + parts_.weight_offset,
                                call.parameters + parts_.bias_offset, output()->data,
                                call.workspace);
  }

  void BackwardParameters(const Call& call) override {
    if (parts_.relu) {
      kernels_.relu_backward(call.rows * output()->elements(), output()->data, output()->gradient,
                             output()->gradient);
    }
    parts_.convolution->BackwardWeights(call.rows, input()->data, output()->gradient,
                                        call.gradients + parts_.weight_offset,
                                        call.gradients + parts_.bias_offset, call.workspace);
  }

  void BackwardData(const Call& call) override {
    parts_.convolution->BackwardData(call.rows, output()->gradient,
                                     call.parameters + parts_.weight_offset, input()->gradient,
                                     call.workspace);
  }

 private:
  const ConvolutionParts parts_;
  const KernelTable& kernels_;
};

class BatchNormOperation : public Operation {
 public:
  BatchNormOperation(std::string name, Tensor* input, Tensor* output, const BatchNormParts& parts,
                     const KernelTable& kernels)
      : Operation(std::move(name), input, output), parts_(parts), kernels_(kernels) {}

  std::string description() const override {
    return std::string("batch norm") + (parts_.relu ? " + relu" : "") +
           (parts_.pool ? " + max pool" : "") + ":" + kernels_.name;
  }
  Memory memory(uint32_t max_rows) const override {
    const size_t choice = parts_.pool ? max_rows * output()->elements() : 0;
    return {.saved_bytes = kChannelArrays * AlignedChannels() * sizeof(float) + choice,
            .input_in_backward = true,
            .gradient_over_input = true};
  }
  int64_t parameter_offset() const override { return static_cast<int64_t>(parts_.weight_offset); }

  void Forward(const Call& call) override {
    const kernels::BatchNormShape shape = Shape(call);
    if (shape.rows == 0) return;
    float* mean = ChannelArray(kMean);
    float* inverse_deviation = ChannelArray(kInverseDeviation);
    if (call.training) {
      // The deviation's place holds the variance until it is computed.
      kernels_.batch_norm_statistics(shape, input()->data, mean, inverse_deviation);
      UpdateRunning(call, shape.pixels(), mean, inverse_deviation);
    } else {
      std::copy_n(call.buffers + parts_.running_mean_offset, shape.channels, mean);
      std::copy_n(call.buffers + parts_.running_variance_offset, shape.channels, inverse_deviation);
    }
    float* scale = ChannelArray(kScale);
    float* shift = ChannelArray(kShift);
    for (int64_t c = 0; c < shape.channels; ++c) {
      inverse_deviation[c] = static_cast<float>(
          1.0 / std::sqrt(static_cast<double>(inverse_deviation[c]) + parts_.layer.epsilon));
      scale[c] = call.parameters[parts_.weight_offset + c] * inverse_deviation[c];
      shift[c] = call.parameters[parts_.bias_offset + c] - mean[c] * scale[c];
    }
    kernels_.batch_norm_apply(shape, input()->data, scale, shift, output()->data, choice());
  }

  void BackwardParameters(const Call& call) override {
    float* dgamma = call.gradients + parts_.weight_offset;
    float* dbeta = call.gradients + parts_.bias_offset;
    if (call.rows == 0) {
      std::fill_n(dgamma, input()->shape.channels, 0.0f);
      std::fill_n(dbeta, input()->shape.channels, 0.0f);
      return;
    }
    kernels_.batch_norm_backward_parameters(Shape(call), Gradient(), dgamma, dbeta);
  }

  void BackwardData(const Call& call) override {
    if (call.rows == 0) return;
    kernels_.batch_norm_backward_data(Shape(call), Gradient(),
                                      call.gradients + parts_.weight_offset,
                                      call.gradients + parts_.bias_offset, input()->gradient);
  }

 private:
  enum { kMean, kInverseDeviation, kScale, kShift, kChannelArrays };

  int64_t AlignedChannels() const { return (input()->shape.channels + 15) / 16 * 16; }
  float* ChannelArray(int which) const {
    return static_cast<float*>(saved()) + which * AlignedChannels();
  }
  uint8_t* choice() const {
    return parts_.pool ? reinterpret_cast<uint8_t*>(ChannelArray(kChannelArrays)) : nullptr;
  }

  kernels::BatchNormShape Shape(const Call& call) const {
    return {.rows = call.rows,
            .height = input()->shape.height,
            .width = input()->shape.width,
            .channels = input()->shape.channels,
            .relu = parts_.relu,
            .pool = parts_.pool};
  }

  kernels::BatchNormGradient Gradient() const {
    return {.x = input()->data,
            .dy = output()->gradient,
            .choice = choice(),
            .scale = ChannelArray(kScale),
            .shift = ChannelArray(kShift),
            .mean = ChannelArray(kMean),
            .inverse_deviation = ChannelArray(kInverseDeviation)};
  }

  // As PyTorch: the running variance takes the unbiased one.
  void UpdateRunning(const Call& call, int64_t pixels, const float* mean,
                     const float* variance) const {
    const float share = static_cast<float>(parts_.layer.momentum);
    const float unbiased =
        pixels > 1 ? static_cast<float>(pixels) / static_cast<float>(pixels - 1) : 1.0f;
    float* running_mean = call.buffers + parts_.running_mean_offset;
    float* running_variance = call.buffers + parts_.running_variance_offset;
    for (int64_t c = 0; c < input()->shape.channels; ++c) {
      running_mean[c] += share * (mean[c] - running_mean[c]);
      running_variance[c] += share * (variance[c] * unbiased - running_variance[c]);
    }
  }

  const BatchNormParts parts_;
  const KernelTable& kernels_;
};

class MaxPoolOperation : public Operation {
 public:
  MaxPoolOperation(std::string name, Tensor* input, Tensor* output, bool relu,
                   const KernelTable& kernels)
      : Operation(std::move(name), input, output), relu_(relu), kernels_(kernels) {}

  std::string description() const override {
    return std::string(relu_ ? "relu + max pool:" : "max pool:") + kernels_.name;
  }
  Memory memory(uint32_t max_rows) const override {
    return {.saved_bytes = max_rows * static_cast<size_t>(output()->elements()),
            .gradient_over_input = true};
  }
  void Forward(const Call& call) override {
    kernels_.max_pool_forward(Shape(call), input()->data, output()->data, choice());
  }
  void BackwardData(const Call& call) override {
    kernels_.max_pool_backward(Shape(call), output()->gradient, choice(), input()->gradient);
  }

 private:
  uint8_t* choice() const { return static_cast<uint8_t*>(saved()); }
  kernels::PoolShape Shape(const Call& call) const {
    return {.rows = call.rows,
            .height = input()->shape.height,
            .width = input()->shape.width,
            .channels = input()->shape.channels,
            .relu = relu_};
  }

  const bool relu_;
  const KernelTable& kernels_;
};

class ReluOperation : public Operation {
 public:
  ReluOperation(std::string name, Tensor* input, Tensor* output, const KernelTable& kernels)
      : Operation(std::move(name), input, output), kernels_(kernels) {}

  std::string description() const override { return std::string("relu:") + kernels_.name; }
  Memory memory(uint32_t max_rows) const override {
    return {.output_in_backward = true, .gradient_over_input = true};
  }
  void Forward(const Call& call) override {
    kernels_.relu_forward(call.rows * output()->elements(), input()->data, output()->data);
  }
  void BackwardData(const Call& call) override {
    kernels_.relu_backward(call.rows * output()->elements(), output()->data, output()->gradient,
                           input()->gradient);
  }

 private:
  const KernelTable& kernels_;
};

class DropoutOperation : public Operation {
 public:
  DropoutOperation(std::string name, Tensor* input, Tensor* output, double probability,
                   uint32_t index, const KernelTable& kernels)
      : Operation(std::move(name), input, output),
        probability_(static_cast<float>(probability)),
        index_(index),
        kernels_(kernels) {}

  std::string description() const override { return std::string("dropout:") + kernels_.name; }
  // The mask is drawn again in backward.
  Memory memory(uint32_t max_rows) const override { return {.gradient_over_input = true}; }
  void Forward(const Call& call) override {
    if (call.training) {
      kernels_.dropout(Mask(call), call.rows, output()->elements(), input()->data, output()->data);
    } else {
      std::copy_n(input()->data, call.rows * output()->elements(), output()->data);
    }
  }
  void BackwardData(const Call& call) override {
    kernels_.dropout(Mask(call), call.rows, output()->elements(), output()->gradient,
                     input()->gradient);
  }

 private:
  kernels::DropoutMask Mask(const Call& call) const {
    return {.key = kernels::DerivePhiloxKey(call.step.seed, call.step.step),
            .layer = index_,
            .first_row = call.step.first_row,
            .probability = probability_};
  }

  const float probability_;
  const uint32_t index_;
  const KernelTable& kernels_;
};

}  // namespace

std::unique_ptr<Operation> MakeConvolutionOperation(std::string name, Tensor* input, Tensor* output,
                                                    ConvolutionParts parts,
                                                    const KernelTable& kernels) {
  return std::make_unique<ConvolutionOperation>(std::move(name), input, output, std::move(parts),
                                                kernels);
}

std::unique_ptr<Operation> MakeBatchNormOperation(std::string name, Tensor* input, Tensor* output,
                                                  const BatchNormParts& parts,
                                                  const KernelTable& kernels) {
  return std::make_unique<BatchNormOperation>(std::move(name), input, output, parts, kernels);
}

std::unique_ptr<Operation> MakeMaxPoolOperation(std::string name, Tensor* input, Tensor* output,
                                                bool relu, const KernelTable& kernels) {
  return std::make_unique<MaxPoolOperation>(std::move(name), input, output, relu, kernels);
}

std::unique_ptr<Operation> MakeReluOperation(std::string name, Tensor* input, Tensor* output,
                                             const KernelTable& kernels) {
  return std::make_unique<ReluOperation>(std::move(name), input, output, kernels);
}

std::unique_ptr<Operation> MakeDropoutOperation(std::string name, Tensor* input, Tensor* output,
                                                double probability, uint32_t index,
                                                const KernelTable& kernels) {
  return std::make_unique<DropoutOperation>(std::move(name), input, output, probability, index,
                                            kernels);
}

}  // namespace muster::nn
