// The kernel table of one instruction set. Included by plain.cc, avx2.cc, avx512.cc and
// avx512_bf16.cc, which define the set and are compiled for it.
#ifndef MUSTER_KERNELS_CPU_TABLE_TABLE_BODY_H_
#define MUSTER_KERNELS_CPU_TABLE_TABLE_BODY_H_

#include "kernels/batch_norm_prepare.h"
#include "kernels/batch_norm_shortcut.h"
#include "kernels/cpu/activation/activation_body.h"
#include "kernels/cpu/activation/pooling_body.h"
#include "kernels/cpu/convolution/dense_kernels.h"
#include "kernels/cpu/convolution/depthwise/convolution_body.h"
#include "kernels/cpu/convolution/direct/convolution_body.h"
#include "kernels/cpu/convolution/tile/gradient_body.h"
#include "kernels/cpu/convolution/tile/product_body.h"
#include "kernels/cpu/image/normalize_body.h"
#include "kernels/cpu/image/render_image.h"
#include "kernels/cpu/image/resize_body.h"
#include "kernels/cpu/loss/nt_xent_body.h"
#include "kernels/cpu/loss/softmax_cross_entropy_body.h"
#include "kernels/cpu/normalization/batch_norm_body.h"
#include "kernels/cpu/optimizer/lars_body.h"
#include "kernels/cpu/optimizer/optimizer_body.h"
#include "kernels/cpu/table/scalar_kernels.h"
#include "kernels/cpu/vector/cast_body.h"
#include "kernels/kernel_table.h"

#define MUSTER_STRINGIFY_INNER_(x) #x
#define MUSTER_STRINGIFY_(x) MUSTER_STRINGIFY_INNER_(x)

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

extern const KernelTable kKernels;
extern const cpu::DenseKernels kDenseKernels;

inline void LoadImages(const ImageBatchShape& shape, const uint8_t* x,
                       const ImageTransformParams* transforms, const float* scale,
                       const float* shift, float* y) {
  cpu::LoadImages(shape, x, transforms, scale, shift, Resize, Normalize, y);
}

inline void BatchNormPrepare(const BatchNormShape& shape, const void* x,
                             const BatchNormTraining& training) {
  PrepareInSteps<BatchNormStatistics, cpu::BatchNormRunning, cpu::BatchNormScale>(shape, x,
                                                                                  training);
}

// The addend is added in a pass of its own.
inline void BackwardParametersOfSum(const BatchNormShape& shape, const BatchNormGradient& gradient,
                                    float* dgamma, float* dbeta, void* dz) {
  BatchNormGradient sum = gradient;
  if (gradient.dy_addend != nullptr) {
    AddForward(shape.type, static_cast<size_t>(shape.pixels() * shape.channels), gradient.dy_addend,
               /*scale_a=*/nullptr, gradient.dy, Activation::kNone, dz);
    sum.dy = dz;
    sum.dy_addend = nullptr;
  }
  BatchNormBackwardParameters(shape, sum, dgamma, dbeta, dz);
}

inline void CastRanges(DataType from, const void* x, DataType to, void* y, const CastRange* ranges,
                       int64_t count, int64_t) {
  for (int64_t i = 0; i < count; ++i) {
    Cast(from, static_cast<const char*>(x) + ranges[i].begin * SizeOf(from), 1, to,
         static_cast<char*>(y) + ranges[i].begin * SizeOf(to),
         static_cast<size_t>(ranges[i].count));
  }
}

const KernelTable kKernels = {
    .name = MUSTER_STRINGIFY_(MUSTER_INSTRUCTION_SET),
    .batch_norm_statistics = BatchNormStatistics,
    .batch_norm_scale = cpu::BatchNormScale,
    .batch_norm_to_sums = cpu::BatchNormToSums,
    .batch_norm_from_sums = cpu::BatchNormFromSums,
    .batch_norm_running = cpu::BatchNormRunning,
    .batch_norm_prepare = BatchNormPrepare,
    .batch_norm_mask_bytes = cpu::BatchNormMaskBytes,
    .batch_norm_pool_bytes = cpu::BatchNormPoolBytes,
    .batch_norm_apply = BatchNormApply,
    .batch_norm_backward_parameters = BackwardParametersInTurn<BackwardParametersOfSum>,
    .batch_norm_backward_data = BackwardDataInTurn<BatchNormBackwardData>,
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
    .dropout = cpu::Dropout,
    .draw_blocks = cpu::DrawBlocks,
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
    .begin_update = cpu::BeginUpdate,
    .restore_skipped = cpu::RestoreSkipped,
};

const cpu::DenseKernels kDenseKernels = {
    .name = MUSTER_STRINGIFY_(MUSTER_INSTRUCTION_SET),
    .lanes = kLanes,
#if defined(__AVX512BF16__)
    .bfloat16_dot = true,
#else
    .bfloat16_dot = false,
#endif
    .direct_forward = DirectConvolutionForward,
    .direct_backward_weights = DirectConvolutionBackwardWeights,
    .tile_product = TileConvolution,
    .tile_pad_channels = TilePadChannels,
    .tile_backward_weights = TileConvolutionBackwardWeights,
    .tile_backward_weights_scratch_bytes = TileConvolutionBackwardWeightsScratchBytes,
};

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_TABLE_TABLE_BODY_H_
