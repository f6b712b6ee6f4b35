#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

const KernelTable kKernels = {
#if defined(__CUDACC__) || defined(MUSTER_COUNT_LAUNCHES)
    .name = "cuda",
#else
    .name = "cuda_on_host",
#endif
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

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
