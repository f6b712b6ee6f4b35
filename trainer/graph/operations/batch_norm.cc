#include "trainer/graph/operations/batch_norm.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/graph/operations/activation.h"

namespace muster::nn {
namespace {

using kernels::Activation;

std::vector<Tensor*> WithAddend(Tensor* input, const BatchNormParts& parts) {
  return parts.addend == nullptr ? std::vector<Tensor*>{input}
                                 : std::vector<Tensor*>{input, parts.addend};
}

// Shared by training and evaluation: converts statistics to a scale and a shift per channel.
class NormalizingOperation : public Operation {
 public:
  NormalizingOperation(std::string name, Tensor* input, Tensor* output, const BatchNormParts& parts,
                       FoldedConvolution folded, kernels::Device& device)
      : Operation(std::move(name), WithAddend(input, parts), output),
        parts_(parts),
        folded_(std::move(folded)),
        device_(device),
        kernels_(device.kernels()) {}

 protected:
  // The last two, the parameters' gradients before the branch's factor, exist only with a block.
  enum {
    kMean,
    kInverseDeviation,
    kScale,
    kShift,
    kChannelArrays,
    kDgamma = kChannelArrays,
    kDbeta
  };

  std::string NormKind() const {
    return absl::StrCat("batch_norm2d", parts_.block != nullptr ? " + stochastic_depth" : "",
                        parts_.addend != nullptr ? " + add" : "", FusedName(parts_.activation),
                        parts_.pool ? " + max_pool2d" : "");
  }

  size_t Channels() const { return static_cast<size_t>(output()->shape.channels); }
  size_t AlignedChannels() const { return (Channels() + 15) / 16 * 16; }
  size_t ChannelBytes() const {
    const size_t arrays = kChannelArrays + (parts_.block != nullptr ? 2 : 0);
    return arrays * AlignedChannels() * sizeof(float);
  }
  float* ChannelArray(int which) const {
    return static_cast<float*>(saved()) + which * AlignedChannels();
  }
  // Shares the memory of the inverse deviation until that is computed.
  float* Variance() const { return ChannelArray(kInverseDeviation); }

  void TakeRunningStatistics(const Call& call) const {
    const size_t bytes = Channels() * sizeof(float);
    device_.Copy(ChannelArray(kMean), call.buffers + parts_.running_mean_offset, bytes);
    device_.Copy(Variance(), call.buffers + parts_.running_variance_offset, bytes);
  }

  // Computes scale and shift from mean and variance, times *factor (null: 1). `bias` is that of the
  // convolution before, if it is folded (null: none).
  void ComputeScaleAndShift(const Call& call, const float* factor, const float* bias) const {
    kernels_.batch_norm_scale(
        {.channels = output()->shape.channels, .epsilon = parts_.layer.epsilon}, factor,
        ChannelArray(kMean), Variance(), call.parameters + parts_.weight_offset,
        call.parameters + parts_.bias_offset, bias, ChannelArray(kInverseDeviation),
        ChannelArray(kScale), ChannelArray(kShift));
  }

  void ForwardFolded(const Call& call) const {
    const ConvolutionParts& convolution = *folded_.parts;
    TakeRunningStatistics(call);
    ComputeScaleAndShift(call, /*factor=*/nullptr, convolution.bias(call));
    const kernels::Epilogue epilogue = {
        .scale = ChannelArray(kScale),
        .shift = ChannelArray(kShift),
        .addend = parts_.addend != nullptr ? parts_.addend->data : nullptr,
        .activation = parts_.activation};
    convolution.convolution->Forward(call.samples, folded_.input->data, convolution.weights(call),
                                     epilogue, output()->data, call.workspace);
  }

  const BatchNormParts parts_;
  const FoldedConvolution folded_;
  kernels::Device& device_;
  const kernels::KernelTable& kernels_;
};

class FoldedConvolutionOperation : public NormalizingOperation {
 public:
  FoldedConvolutionOperation(std::string name, Tensor* output, const BatchNormParts& parts,
                             FoldedConvolution folded, kernels::Device& device)
      : NormalizingOperation(std::move(name), folded.input, output, parts, folded, device) {}

  std::string kind() const override { return "conv2d + " + NormKind(); }
  std::string description() const override { return folded_.parts->convolution->description(); }
  kernels::DataType compute_type() const override { return folded_.parts->compute_type; }
  Memory memory(uint32_t max_samples) const override {
    return {.saved_bytes = ChannelBytes(),
            .workspace_bytes = folded_.parts->convolution->workspace_bytes()};
  }
  int64_t forward_flops() const override {
    return folded_.parts->forward_flops() + output()->elements();
  }
  bool reads_cast_parameters() const override { return folded_.parts->reads_cast_weights(); }
  void Forward(const Call& call) override { ForwardFolded(call); }
};

class BatchNormOperation : public NormalizingOperation {
 public:
  using NormalizingOperation::NormalizingOperation;

  std::string kind() const override { return NormKind(); }
  std::string description() const override {
    return absl::StrCat(kernels_.name, AppliedBySum() ? ", applied by the sum" : "");
  }
  std::string folds() const override { return folded_.name; }
  bool reads_cast_parameters() const override {
    return folded_.parts != nullptr && folded_.parts->reads_cast_weights();
  }
  std::vector<std::string> recomputed() const override {
    std::vector<std::string> values = {"normalised values"};
    if (parts_.activation != Activation::kNone && !MasksSum() && !parts_.pool) {
      values.push_back("activation mask");
    }
    if (parts_.pool) values.push_back("values before the pool");
    return values;
  }
  Memory memory(uint32_t max_samples) const override {
    return {.saved_bytes = ChannelBytes() + SumsBytes() + ChoiceBytes(max_samples),
            // Gradients summed over ranks.
            .workspace_bytes = (parts_.shortcut == nullptr ? 2 : 4) * Channels() * sizeof(float),
            .input_in_backward = true,
            .output_in_backward = MasksSum() && ChoiceBytes(max_samples) == 0,
            .gradient_over_input = true,
            .activation_in_backward = WritesMaskedGradient(),
            .backward_by_consumer = AppliedBySum()};
  }

  void Forward(const Call& call) override {
    output()->normalized = {};
    if (!call.training && folded_.parts != nullptr) return ForwardFolded(call);
    if (Dropped(call)) {
      kernels_.add_forward(output()->type, OutputCount(call), nullptr, nullptr, parts_.addend->data,
                           parts_.activation, output()->data);
      return;
    }
    if (call.training && call.reducer == nullptr) {
      if (call.samples == 0) return;
      Prepare(call);
    } else {
      if (call.training) {
        ReduceStatistics(call);
      } else {
        TakeRunningStatistics(call);
      }
      ComputeScaleAndShift(call, Factor(call), /*bias=*/nullptr);
    }
    if (call.training && AppliedBySum()) {
      output()->normalized = {input()->data, ChannelArray(kScale), ChannelArray(kShift)};
    } else {
      Apply(call);
    }
  }

  // Not with an addend, which is not kept.
  bool Recomputes() const override {
    return parts_.addend == nullptr && !parts_.pool && !AppliedBySum();
  }
  void Recompute(const Call& call) override { Apply(call); }

  // The addend's gradient is the sum's. BackwardParameters computes it in the same pass as the
  // parameters' gradients, unless the branch is dropped.
  void BackwardActivation(const Call& call) override {
    if (Dropped(call)) ActivationBackward(kernels_, parts_.activation, call.samples, *output());
  }

  kernels::BatchNormShortcut Shortcut(const Call& call) const override {
    return {.x = input()->data,
            .scale = ChannelArray(kScale),
            .shift = ChannelArray(kShift),
            .mean = ChannelArray(kMean),
            .inverse_deviation = ChannelArray(kInverseDeviation),
            .dgamma = call.gradients + parts_.weight_offset,
            .dbeta = call.gradients + parts_.bias_offset,
            .dx = input()->gradient};
  }

  void BackwardParameters(const Call& call) override {
    if (AppliedBySum()) return;
    float* const dgamma = call.gradients + parts_.weight_offset;
    float* const dbeta = call.gradients + parts_.bias_offset;
    if (Dropped(call)) {
      device_.Zero(dgamma, Channels() * sizeof(float));
      device_.Zero(dbeta, Channels() * sizeof(float));
      return;
    }
    kernels::BatchNormGradient gradient = Gradient(call);
    if (MasksSum()) {
      gradient.mask = choice(call.samples);
      if (gradient.mask == nullptr) gradient.y = output()->data;
    }
    gradient.dy_addend = output()->gradient_addend;
    gradient.dy_addend_stride = output()->gradient_addend_stride;
    const float* const factor = Factor(call);
    // BackwardData needs them without the factor, which is already in the scale.
    float* const plain_dgamma = factor == nullptr ? dgamma : ChannelArray(kDgamma);
    float* const plain_dbeta = factor == nullptr ? dbeta : ChannelArray(kDbeta);
    const bool masked = MasksSum() || gradient.dy_addend != nullptr;
    kernels_.batch_norm_backward_parameters(Shape(call), gradient, plain_dgamma, plain_dbeta,
                                            masked ? output()->gradient : nullptr);
    if (factor == nullptr) return;
    const auto multiply = [&](const float* from, float* to) {
      kernels_.scaled_copy(kernels::DataType::kFloat32, Channels(), factor, from, to);
    };
    multiply(plain_dgamma, dgamma);
    multiply(plain_dbeta, dbeta);
  }

  bool reads_parameter_gradients() const override { return true; }
  bool TakesGradientAddend() const override {
    return WritesMaskedGradient() && parts_.block == nullptr;
  }
  // With masks that forward writes.
  bool TakesStridedGradientAddend() const override { return MasksSum() && ChoiceBytes(1) > 0; }

  void BackwardData(const Call& call, size_t, void* dx) override {
    if (AppliedBySum()) return;
    if (Dropped(call)) {
      device_.Zero(dx, input()->bytes(call.samples));
      return;
    }
    const bool plain = Factor(call) == nullptr;
    const float* dgamma = plain ? call.gradients + parts_.weight_offset : ChannelArray(kDgamma);
    const float* dbeta = plain ? call.gradients + parts_.bias_offset : ChannelArray(kDbeta);
    kernels::BatchNormGradient gradient = Gradient(call);
    if (call.reducer != nullptr) {
      float* const sums = static_cast<float*>(call.workspace);
      size_t count = 0;
      const auto add = [&](const float* gradients) {
        float* const sum = sums + count;
        device_.Copy(sum, gradients, Channels() * sizeof(float));
        count += Channels();
        return sum;
      };
      dgamma = add(dgamma);
      dbeta = add(dbeta);
      if (parts_.shortcut != nullptr) {
        gradient.shortcut.dgamma = add(gradient.shortcut.dgamma);
        gradient.shortcut.dbeta = add(gradient.shortcut.dbeta);
      }
      call.reducer->Sum(sums, count);
    }
    if (call.samples == 0) return;
    kernels::BatchNormShape shape = Shape(call);
    if (MasksSum()) shape.activation = Activation::kNone;  // done in BackwardParameters
    kernels_.batch_norm_backward_data(shape, gradient, dgamma, dbeta, dx);
  }
  // Only the addend's gradient.
  bool PassesGradient(size_t input) const override { return input == 1; }

 private:
  void Apply(const Call& call) const {
    kernels_.batch_norm_apply(Shape(call), input()->data, ChannelArray(kScale),
                              ChannelArray(kShift), Addend(), output()->data,
                              call.training ? choice(call.samples) : nullptr);
  }

  bool AppliedBySum() const { return parts_.applied_by == BatchNormParts::AppliedBy::kSum; }
  kernels::BatchNormAddend Addend() const {
    if (parts_.addend == nullptr) return {};
    if (parts_.addend->normalized.data != nullptr) return parts_.addend->normalized;
    return {parts_.addend->data};
  }

  // Whether the activation follows a sum, so that its mask cannot be recomputed from the input:
  // forward writes it or, where the kernels have no such mask, backward reads the output.
  bool MasksSum() const {
    return parts_.addend != nullptr && parts_.activation != Activation::kNone;
  }
  // Whether BackwardParameters may write the output's gradient, where the activation's mask is set
  // and after adding to it: always after a sum; with pooling other than 2x2 if it adds to it.
  bool WritesMaskedGradient() const { return MasksSum() || (parts_.pool && !Shape(1).pools_2x2()); }
  bool Dropped(const Call& call) const {
    return call.training && parts_.block != nullptr && parts_.block->dropped;
  }
  // Factor of stochastic depth in device memory; null: 1.
  const float* Factor(const Call& call) const {
    return parts_.block == nullptr ? nullptr : parts_.block->factor(call.training);
  }
  // Device address of a flag that is nonzero if this batch is used; null: it always is.
  const float* Active() const {
    return parts_.block == nullptr ? active() : &parts_.block->state->active;
  }
  // Bytes that forward writes about the pooling or the activation for backward. Not with a block,
  // whose mask is also needed if it is dropped.
  size_t ChoiceBytes(uint32_t samples) const {
    if (parts_.pool && Shape(samples).pools_2x2()) {
      return samples * static_cast<size_t>(output()->elements());
    }
    if (parts_.pool) return kernels_.batch_norm_pool_bytes(Shape(samples));
    if (!MasksSum() || parts_.block != nullptr) return 0;
    return kernels_.batch_norm_mask_bytes(Shape(samples));
  }
  uint8_t* choice(uint32_t samples) const {
    if (ChoiceBytes(samples) == 0) return nullptr;
    return static_cast<uint8_t*>(saved()) + ChannelBytes() + SumsBytes();
  }

  kernels::BatchNormShape Shape(const Call& call) const { return Shape(call.samples); }
  kernels::BatchNormShape Shape(uint32_t samples) const {
    const MaxPool2d pool = parts_.pool.value_or(MaxPool2d{});
    return {.samples = samples,
            .height = input()->shape.height,
            .width = input()->shape.width,
            .channels = input()->shape.channels,
            .activation = parts_.activation,
            .pool = parts_.pool.has_value(),
            .type = input()->type,
            .pool_kernel = pool.kernel,
            .pool_stride = pool.stride,
            .pool_padding = pool.padding};
  }

  kernels::BatchNormGradient Gradient(const Call& call) const {
    return {.x = input()->data,
            .dy = output()->gradient,
            .choice = parts_.pool ? choice(call.samples) : nullptr,
            .scale = ChannelArray(kScale),
            .shift = ChannelArray(kShift),
            .mean = ChannelArray(kMean),
            .inverse_deviation = ChannelArray(kInverseDeviation),
            .pixels = static_cast<double>(Shape(call).pixels()),
            .shared_pixels = SharedPixels(call),
            .shortcut = parts_.shortcut == nullptr ? kernels::BatchNormShortcut{}
                                                   : parts_.shortcut->Shortcut(call)};
  }

  // Computes the statistics of this rank's samples, the scale and the shift, and updates the
  // running statistics.
  void Prepare(const Call& call) const {
    kernels_.batch_norm_prepare(
        Shape(call), input()->data,
        {.epsilon = parts_.layer.epsilon,
         .momentum = parts_.layer.momentum,
         .factor = Factor(call),
         .active = Active(),
         .gamma = call.parameters + parts_.weight_offset,
         .beta = call.parameters + parts_.bias_offset,
         .mean = ChannelArray(kMean),
         .inverse_deviation = ChannelArray(kInverseDeviation),
         .scale = ChannelArray(kScale),
         .shift = ChannelArray(kShift),
         .running_mean = call.buffers + parts_.running_mean_offset,
         .running_variance = call.buffers + parts_.running_variance_offset});
  }

  // Computes mean and variance of the samples of all ranks, and updates the running statistics.
  void ReduceStatistics(const Call& call) {
    const kernels::BatchNormShape shape = Shape(call);
    if (shape.samples > 0) {
      kernels_.batch_norm_statistics(shape, input()->data, ChannelArray(kMean), Variance());
    }
    kernels_.batch_norm_to_sums(shape.channels, static_cast<double>(shape.pixels()),
                                ChannelArray(kMean), Variance(), Sums());
    call.reducer->Sum(Sums(), 2 * Channels() + 1);
    kernels_.batch_norm_from_sums(shape.channels, Sums(), ChannelArray(kMean), Variance());
    kernels_.batch_norm_running({.channels = shape.channels,
                                 .pixels = static_cast<double>(shape.pixels()),
                                 .momentum = parts_.layer.momentum,
                                 .shared_pixels = SharedPixels(call)},
                                Active(), ChannelArray(kMean), Variance(),
                                call.buffers + parts_.running_mean_offset,
                                call.buffers + parts_.running_variance_offset);
  }

  // Statistics of the last training pass summed over all ranks, in double.
  double* Sums() const {
    return reinterpret_cast<double*>(static_cast<std::byte*>(saved()) + ChannelBytes());
  }
  size_t SumsBytes() const { return (2 * Channels() + 1 + 7) / 8 * 8 * sizeof(double); }
  // Device address of the number of pixels in these sums; null: this rank's pixels.
  const double* SharedPixels(const Call& call) const {
    return call.reducer != nullptr ? Sums() + 2 * Channels() : nullptr;
  }
};

}  // namespace

std::unique_ptr<Operation> MakeBatchNormOperation(std::string name, Tensor* input, Tensor* output,
                                                  const BatchNormParts& parts,
                                                  FoldedConvolution folded,
                                                  kernels::Device& device) {
  return std::make_unique<BatchNormOperation>(std::move(name), input, output, parts,
                                              std::move(folded), device);
}

std::unique_ptr<Operation> MakeFoldedConvolutionOperation(std::string name, Tensor* output,
                                                          const BatchNormParts& parts,
                                                          FoldedConvolution folded,
                                                          kernels::Device& device) {
  return std::make_unique<FoldedConvolutionOperation>(std::move(name), output, parts,
                                                      std::move(folded), device);
}

}  // namespace muster::nn
