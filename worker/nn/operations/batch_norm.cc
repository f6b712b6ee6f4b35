#include "worker/nn/operations/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "worker/nn/operations/activation.h"

namespace muster::nn {
namespace {

class BatchNormOperation : public Operation {
 public:
  BatchNormOperation(std::string name, Tensor* input, Tensor* output, const BatchNormParts& parts,
                     const kernels::KernelTable& kernels)
      : Operation(std::move(name), {input}, output), parts_(parts), kernels_(kernels) {}

  std::string kind() const override {
    return std::string("batch_norm2d") + FusedName(parts_.activation) +
           (parts_.pool ? " + max_pool2d" : "");
  }
  std::string description() const override { return kernels_.name; }
  Memory memory(uint32_t max_rows) const override {
    const size_t choice = parts_.pool ? max_rows * output()->elements() : 0;
    return {.saved_bytes = kChannelArrays * AlignedChannels() * sizeof(float) + choice,
            // Sums over ranks: doubles, then floats.
            .workspace_bytes = (1 + 2 * Channels()) * (sizeof(double) + sizeof(float)),
            .inputs_in_backward = true,
            .gradient_over_input = true};
  }

  void Forward(const Call& call) override {
    if (call.training) {
      if (!ComputeStatistics(call)) return;
    } else {
      std::copy_n(call.buffers + parts_.running_mean_offset, Channels(), ChannelArray(kMean));
      std::copy_n(call.buffers + parts_.running_variance_offset, Channels(), Variance());
    }
    const float* mean = ChannelArray(kMean);
    float* inverse_deviation = ChannelArray(kInverseDeviation);
    float* scale = ChannelArray(kScale);
    float* shift = ChannelArray(kShift);
    for (size_t c = 0; c < Channels(); ++c) {
      inverse_deviation[c] = static_cast<float>(
          1.0 / std::sqrt(static_cast<double>(Variance()[c]) + parts_.layer.epsilon));
      scale[c] = call.parameters[parts_.weight_offset + c] * inverse_deviation[c];
      shift[c] = call.parameters[parts_.bias_offset + c] - mean[c] * scale[c];
    }
    kernels_.batch_norm_apply(Shape(call), input()->data, scale, shift, output()->data, choice());
  }

  void BackwardParameters(const Call& call) override {
    kernels_.batch_norm_backward_parameters(Shape(call), Gradient(),
                                            call.gradients + parts_.weight_offset,
                                            call.gradients + parts_.bias_offset);
  }

  void BackwardData(const Call& call, size_t, float* dx) override {
    const float* dgamma = call.gradients + parts_.weight_offset;
    const float* dbeta = call.gradients + parts_.bias_offset;
    if (call.reducer != nullptr) {
      const size_t channels = Channels();
      double* const sums = static_cast<double*>(call.workspace);
      std::copy_n(dgamma, channels, sums);
      std::copy_n(dbeta, channels, sums + channels);
      call.reducer->Sum(sums, 2 * channels);
      float* const reduced = reinterpret_cast<float*>(sums + 2 * channels);
      std::transform(sums, sums + 2 * channels, reduced,
                     [](double sum) { return static_cast<float>(sum); });
      dgamma = reduced;
      dbeta = reduced + channels;
    }
    if (call.rows == 0) return;
    kernels_.batch_norm_backward_data(Shape(call), Gradient(), dgamma, dbeta, dx);
  }

 private:
  enum { kMean, kInverseDeviation, kScale, kShift, kChannelArrays };

  size_t Channels() const { return static_cast<size_t>(input()->shape.channels); }
  size_t AlignedChannels() const { return (Channels() + 15) / 16 * 16; }
  float* ChannelArray(int which) const {
    return static_cast<float*>(saved()) + which * AlignedChannels();
  }
  // In the deviation's place until that is computed.
  float* Variance() const { return ChannelArray(kInverseDeviation); }
  uint8_t* choice() const {
    return parts_.pool ? reinterpret_cast<uint8_t*>(ChannelArray(kChannelArrays)) : nullptr;
  }

  kernels::BatchNormShape Shape(const Call& call) const {
    return {.rows = call.rows,
            .height = input()->shape.height,
            .width = input()->shape.width,
            .channels = input()->shape.channels,
            .activation = parts_.activation,
            .pool = parts_.pool};
  }

  kernels::BatchNormGradient Gradient() const {
    return {.x = input()->data,
            .dy = output()->gradient,
            .choice = choice(),
            .scale = ChannelArray(kScale),
            .shift = ChannelArray(kShift),
            .mean = ChannelArray(kMean),
            .inverse_deviation = ChannelArray(kInverseDeviation),
            .pixels = pixels_};
  }

  // Mean and variance of the batch, which the running statistics take in. False without any row.
  bool ComputeStatistics(const Call& call) {
    const kernels::BatchNormShape shape = Shape(call);
    pixels_ = static_cast<double>(shape.pixels());
    if (shape.rows > 0) {
      kernels_.batch_norm_statistics(shape, input()->data, ChannelArray(kMean), Variance());
    }
    if (call.reducer != nullptr) ReduceStatistics(call);
    if (pixels_ == 0) return false;
    UpdateRunning(call);
    return true;
  }

  // From this rank's statistics to those of all ranks, by the sums of values and of squares; in
  // double nothing is lost when the mean is far from zero.
  void ReduceStatistics(const Call& call) {
    const size_t channels = Channels();
    float* const mean = ChannelArray(kMean);
    float* const variance = Variance();
    double* const sums = static_cast<double*>(call.workspace);
    double* const squares = sums + channels;
    double& pixels = squares[channels];
    pixels = pixels_;
    for (size_t c = 0; c < channels; ++c) {
      const double m = pixels_ > 0 ? double{mean[c]} : 0;
      const double v = pixels_ > 0 ? double{variance[c]} : 0;
      sums[c] = pixels_ * m;
      squares[c] = pixels_ * (v + m * m);
    }
    call.reducer->Sum(sums, 2 * channels + 1);
    pixels_ = pixels;
    if (pixels_ == 0) return;
    for (size_t c = 0; c < channels; ++c) {
      const double m = sums[c] / pixels_;
      mean[c] = static_cast<float>(m);
      variance[c] = static_cast<float>(std::max(0.0, squares[c] / pixels_ - m * m));
    }
  }

  // As PyTorch: the running variance takes the unbiased one.
  void UpdateRunning(const Call& call) const {
    const float share = static_cast<float>(parts_.layer.momentum);
    const float unbiased = pixels_ > 1 ? static_cast<float>(pixels_ / (pixels_ - 1)) : 1.0f;
    const float* const mean = ChannelArray(kMean);
    const float* const variance = Variance();
    float* const running_mean = call.buffers + parts_.running_mean_offset;
    float* const running_variance = call.buffers + parts_.running_variance_offset;
    for (size_t c = 0; c < Channels(); ++c) {
      running_mean[c] += share * (mean[c] - running_mean[c]);
      running_variance[c] += share * (variance[c] * unbiased - running_variance[c]);
    }
  }

  const BatchNormParts parts_;
  const kernels::KernelTable& kernels_;
  double pixels_ = 0;  // that the statistics of the last Forward are of
};

}  // namespace

std::unique_ptr<Operation> MakeBatchNormOperation(std::string name, Tensor* input, Tensor* output,
                                                  const BatchNormParts& parts,
                                                  const kernels::KernelTable& kernels) {
  return std::make_unique<BatchNormOperation>(std::move(name), input, output, parts, kernels);
}

}  // namespace muster::nn
