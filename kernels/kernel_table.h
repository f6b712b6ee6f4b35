// One implementation of every operation that is ours, as functions.
//
// Shapes, types and meanings stand in each operation's own header. kernel_contract_test holds every
// table to ReferenceKernels().
#ifndef MUSTER_KERNELS_KERNEL_TABLE_H_
#define MUSTER_KERNELS_KERNEL_TABLE_H_

#include "kernels/activation.h"
#include "kernels/batch_norm.h"
#include "kernels/direct_convolution.h"
#include "kernels/dropout.h"
#include "kernels/normalize.h"
#include "kernels/pooling.h"
#include "kernels/sgd.h"
#include "kernels/softmax_cross_entropy.h"

namespace muster::kernels {

struct KernelTable {
  const char* name;
  BatchNormStatistics* batch_norm_statistics;
  BatchNormApply* batch_norm_apply;
  BatchNormBackwardParameters* batch_norm_backward_parameters;
  BatchNormBackwardData* batch_norm_backward_data;
  MaxPoolForward* max_pool_forward;
  MaxPoolBackward* max_pool_backward;
  ReluForward* relu_forward;
  ReluBackward* relu_backward;
  Dropout* dropout;
  SoftmaxCrossEntropy* softmax_cross_entropy;
  Normalize* normalize;
  DirectConvolutionForward* direct_convolution_forward;
  DirectConvolutionBackwardWeights* direct_convolution_backward_weights;
  decltype(SgdStep)* sgd_step;
};

// Slow, plain, accumulated in double.
const KernelTable& ReferenceKernels();

enum class InstructionSet { kPlain, kAvx2, kAvx512 };

// The best that this processor and operating system support.
InstructionSet DetectInstructionSet();

// Compiled for `set`, which the processor must support.
const KernelTable& CpuKernels(InstructionSet set);

// CpuKernels(DetectInstructionSet()).
const KernelTable& CpuKernels();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_KERNEL_TABLE_H_
