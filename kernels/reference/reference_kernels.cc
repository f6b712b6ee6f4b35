// The reference's table, and operations that need no separate file.
#include "kernels/reference/reference_kernels.h"

#include <algorithm>
#include <cmath>

#include "kernels/half.h"

namespace muster::kernels {
namespace reference {
namespace {

void Dropout(DataType type, const DropoutMask& mask, const RandomDraw* draw, int64_t samples,
             int64_t columns, const void* x, void* y) {
  for (int64_t i = 0; i < samples * columns; ++i) {
    const uint64_t sample = draw->first_sample + static_cast<uint64_t>(i / columns);
    const uint32_t column = static_cast<uint32_t>(i % columns);
    const float uniform = Uniform01(
        Philox4x32(DropoutCounter(mask.layer, sample, column / 4), draw->key)[column % 4]);
    const double kept = LoadElement(type, x, i) / (1.0 - double{mask.probability});
    StoreElement(type, uniform < mask.probability ? 0.0 : kept, y, i);
  }
}

void SoftmaxCrossEntropy(const CrossEntropyOptions& options, const float* logits,
                         const int32_t* labels, const double* loss_scale, float* dlogits,
                         LossResult* result) {
  const double scale = options.scale * (loss_scale != nullptr ? *loss_scale : 1);
  *result = {};
  for (int64_t sample = 0; sample < options.samples; ++sample) {
    const float* logit = logits + sample * options.classes;
    const int64_t best = std::max_element(logit, logit + options.classes) - logit;
    double sum = 0;
    for (int64_t c = 0; c < options.classes; ++c) sum += std::exp(double{logit[c]} - logit[best]);
    for (int64_t c = 0; c < options.classes; ++c) {
      const double log_probability = double{logit[c]} - logit[best] - std::log(sum);
      const double target = (c == labels[sample] ? 1.0 - options.label_smoothing : 0.0) +
                            options.label_smoothing / static_cast<double>(options.classes);
      result->loss_sum -= target * log_probability;
      if (dlogits != nullptr) {
        dlogits[sample * options.classes + c] =
            static_cast<float>(scale * (std::exp(log_probability) - target));
      }
    }
    result->correct += best == labels[sample] ? 1 : 0;
  }
}

constexpr KernelTable kKernels = {
    .name = "reference",
    .batch_norm_statistics = BatchNormStatistics,
    .batch_norm_scale = BatchNormScale,
    .batch_norm_to_sums = BatchNormToSums,
    .batch_norm_from_sums = BatchNormFromSums,
    .batch_norm_running = BatchNormRunning,
    .batch_norm_prepare = BatchNormPrepare,
    .batch_norm_mask_bytes = BatchNormMaskBytes,
    .batch_norm_pool_bytes = BatchNormPoolBytes,
    .batch_norm_apply = BatchNormApply,
    .batch_norm_backward_parameters = BatchNormBackwardParameters,
    .batch_norm_backward_data = BatchNormBackwardData,
    .max_pool_forward = MaxPoolForward,
    .max_pool_backward = MaxPoolBackward,
    .average_pool_forward = AveragePoolForward,
    .average_pool_backward = AveragePoolBackward,
    .activation_forward = ActivationForward,
    .activation_backward = ActivationBackward,
    .add_forward = AddForward,
    .accumulate = Accumulate,
    .scaled_copy = ScaledCopy,
    .cast = Cast,
    .cast_ranges = CastRanges,
    .all_finite = AllFinite,
    .dropout = Dropout,
    .draw_blocks = DrawBlocks,
    .softmax_cross_entropy = SoftmaxCrossEntropy,
    .l2_normalize_forward = L2NormalizeForward,
    .l2_normalize_backward = L2NormalizeBackward,
    .nt_xent_forward = NtXentForward,
    .nt_xent_backward = NtXentBackward,
    .resize = Resize,
    .load_images = LoadImages,
    .depthwise_convolution_forward = DepthwiseConvolutionForward,
    .depthwise_convolution_backward_data = DepthwiseConvolutionBackwardData,
    .depthwise_convolution_backward_weights = DepthwiseConvolutionBackwardWeights,
    .sgd_step = SgdStep,
    .adamw_step = AdamWStep,
    .sum_of_squares = SumOfSquares,
    .lerp = Lerp,
    .lars_rates = LarsRates,
    .lars_step = LarsStep,
    .begin_update = BeginUpdate,
    .restore_skipped = RestoreSkipped,
};

}  // namespace
}  // namespace reference

const KernelTable& ReferenceKernels() { return reference::kKernels; }

}  // namespace muster::kernels
