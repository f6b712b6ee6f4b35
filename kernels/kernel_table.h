// The operations that every device implements, as a table of functions.
//
// Shapes, types and semantics are in each operation's header. The *_contract_test files compare
// every table with ReferenceKernels().
#ifndef MUSTER_KERNELS_KERNEL_TABLE_H_
#define MUSTER_KERNELS_KERNEL_TABLE_H_

#include "kernels/activation.h"
#include "kernels/batch_norm.h"
#include "kernels/cast.h"
#include "kernels/depthwise_convolution.h"
#include "kernels/dropout.h"
#include "kernels/image_transform.h"
#include "kernels/lars.h"
#include "kernels/nt_xent.h"
#include "kernels/optimizer.h"
#include "kernels/pooling.h"
#include "kernels/resize.h"
#include "kernels/softmax_cross_entropy.h"
#include "kernels/update.h"

namespace muster::kernels {

struct KernelTable {
  const char* name;
  // batch_norm.h
  BatchNormStatistics* batch_norm_statistics;
  BatchNormScale* batch_norm_scale;
  BatchNormToSums* batch_norm_to_sums;
  BatchNormFromSums* batch_norm_from_sums;
  BatchNormRunning* batch_norm_running;
  BatchNormPrepare* batch_norm_prepare;
  BatchNormMaskBytes* batch_norm_mask_bytes;
  BatchNormPoolBytes* batch_norm_pool_bytes;
  BatchNormApply* batch_norm_apply;
  BatchNormBackwardParameters* batch_norm_backward_parameters;
  BatchNormBackwardData* batch_norm_backward_data;
  // pooling.h
  MaxPoolForward* max_pool_forward;
  MaxPoolBackward* max_pool_backward;
  AveragePoolForward* average_pool_forward;
  AveragePoolBackward* average_pool_backward;
  // activation.h
  ActivationForward* activation_forward;
  ActivationBackward* activation_backward;
  AddForward* add_forward;
  Accumulate* accumulate;
  ScaledCopy* scaled_copy;
  // cast.h
  Cast* cast;
  CastRanges* cast_ranges;
  AllFinite* all_finite;
  // dropout.h
  Dropout* dropout;
  DrawBlocks* draw_blocks;
  // softmax_cross_entropy.h
  SoftmaxCrossEntropy* softmax_cross_entropy;
  // nt_xent.h
  L2NormalizeForward* l2_normalize_forward;
  L2NormalizeBackward* l2_normalize_backward;
  NtXentForward* nt_xent_forward;
  NtXentBackward* nt_xent_backward;
  // resize.h
  Resize* resize;
  // image_transform.h
  LoadImages* load_images;
  // depthwise_convolution.h
  DepthwiseConvolutionForward* depthwise_convolution_forward;
  DepthwiseConvolutionBackwardData* depthwise_convolution_backward_data;
  DepthwiseConvolutionBackwardWeights* depthwise_convolution_backward_weights;
  // optimizer.h
  SgdStep* sgd_step;
  AdamWStep* adamw_step;
  SumOfSquares* sum_of_squares;
  Lerp* lerp;
  // lars.h
  LarsRates* lars_rates;
  LarsStep* lars_step;
  // update.h
  BeginUpdate* begin_update;
  RestoreSkipped* restore_skipped;
};

// Slow reference implementation, accumulated in double.
const KernelTable& ReferenceKernels();

// Kernels for the best instruction set that the CPU and the operating system support; see
// kernels/cpu/table/instruction_set.h for others.
const KernelTable& CpuKernels();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_KERNEL_TABLE_H_
