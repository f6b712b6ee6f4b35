// The operations of KernelTable on a GPU, a file per family as in kernels/reference. Every pointer
// is to device memory; calls are queued in the stream of the calling thread's context.
#ifndef MUSTER_KERNELS_CUDA_TABLE_KERNELS_H_
#define MUSTER_KERNELS_CUDA_TABLE_KERNELS_H_

#include "kernels/cuda/convolution/convolution_kernels.h"
#include "kernels/cuda/launch/elements.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// batch_norm.cu
kernels::BatchNormStatistics BatchNormStatistics;
kernels::BatchNormScale BatchNormScale;
kernels::BatchNormToSums BatchNormToSums;
kernels::BatchNormFromSums BatchNormFromSums;
kernels::BatchNormRunning BatchNormRunning;
kernels::BatchNormApply BatchNormApply;

// batch_norm_backward.cu
kernels::BatchNormBackwardParameters BatchNormBackwardParameters;
kernels::BatchNormBackwardData BatchNormBackwardData;

// pooling.cu
kernels::MaxPoolForward MaxPoolForward;
kernels::MaxPoolBackward MaxPoolBackward;
kernels::AveragePoolForward AveragePoolForward;
kernels::AveragePoolBackward AveragePoolBackward;

// activation.cu
kernels::ActivationForward ActivationForward;
kernels::ActivationBackward ActivationBackward;
kernels::AddForward AddForward;
kernels::Accumulate Accumulate;
kernels::ScaledCopy ScaledCopy;

// cast.cu
kernels::Cast Cast;
kernels::AllFinite AllFinite;

// dropout.cu
kernels::Dropout Dropout;

// cross_entropy.cu
kernels::SoftmaxCrossEntropy SoftmaxCrossEntropy;

// images.cu
kernels::Resize Resize;
kernels::LoadImages LoadImages;

// nt_xent.cu
kernels::L2NormalizeForward L2NormalizeForward;
kernels::L2NormalizeBackward L2NormalizeBackward;
kernels::NtXentForward NtXentForward;
kernels::NtXentBackward NtXentBackward;

// depthwise_convolution.cu
kernels::DepthwiseConvolutionForward DepthwiseConvolutionForward;
kernels::DepthwiseConvolutionBackwardData DepthwiseConvolutionBackwardData;
kernels::DepthwiseConvolutionBackwardWeights DepthwiseConvolutionBackwardWeights;

// optimizer.cu
kernels::SgdStep SgdStep;
kernels::AdamWStep AdamWStep;
kernels::SumOfSquares SumOfSquares;
kernels::Lerp Lerp;

// lars.cu
kernels::LarsRates LarsRates;
kernels::LarsStep LarsStep;

// update.cu
kernels::DrawBlocks DrawBlocks;
kernels::BeginUpdate BeginUpdate;
kernels::RestoreSkipped RestoreSkipped;

extern const KernelTable kKernels;

// convolution_kernels.cu
extern const ConvolutionKernels kConvolutionKernels;

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_TABLE_KERNELS_H_
