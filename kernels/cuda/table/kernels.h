// The operations of KernelTable on a GPU. All pointers are to device memory. Operations are queued
// in the stream of the calling thread's current context.
#ifndef MUSTER_KERNELS_CUDA_TABLE_KERNELS_H_
#define MUSTER_KERNELS_CUDA_TABLE_KERNELS_H_

#include "kernels/cuda/convolution/convolution_kernels.h"
#include "kernels/cuda/launch/elements.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

// normalization/batch_norm.cu
kernels::BatchNormStatistics BatchNormStatistics;
kernels::BatchNormScale BatchNormScale;
kernels::BatchNormToSums BatchNormToSums;
kernels::BatchNormFromSums BatchNormFromSums;
kernels::BatchNormRunning BatchNormRunning;
kernels::BatchNormPrepare BatchNormPrepare;
kernels::BatchNormMaskBytes BatchNormMaskBytes;
kernels::BatchNormPoolBytes BatchNormPoolBytes;
kernels::BatchNormApply BatchNormApply;

// normalization/batch_norm_backward.cu
kernels::BatchNormBackwardParameters BatchNormBackwardParameters;
kernels::BatchNormBackwardData BatchNormBackwardData;

// activation/pooling.cu
kernels::MaxPoolForward MaxPoolForward;
kernels::MaxPoolBackward MaxPoolBackward;
kernels::AveragePoolForward AveragePoolForward;
kernels::AveragePoolBackward AveragePoolBackward;

// activation/activation.cu
kernels::ActivationForward ActivationForward;
kernels::ActivationBackward ActivationBackward;
kernels::AddForward AddForward;
kernels::Accumulate Accumulate;
kernels::ScaledCopy ScaledCopy;

// activation/cast.cu
kernels::Cast Cast;
kernels::CastRanges CastRanges;
kernels::AllFinite AllFinite;

// activation/dropout.cu
kernels::Dropout Dropout;

// loss/cross_entropy.cu
kernels::SoftmaxCrossEntropy SoftmaxCrossEntropy;

// image/images.cu
kernels::Resize Resize;
kernels::LoadImages LoadImages;

// loss/nt_xent.cu
kernels::L2NormalizeForward L2NormalizeForward;
kernels::L2NormalizeBackward L2NormalizeBackward;
kernels::NtXentForward NtXentForward;
kernels::NtXentBackward NtXentBackward;
kernels::NtXentLosses NtXentLosses;
kernels::NtXentCoefficients NtXentCoefficients;

// convolution/depthwise/convolution.cu
kernels::DepthwiseConvolutionForward DepthwiseConvolutionForward;
kernels::DepthwiseConvolutionBackwardData DepthwiseConvolutionBackwardData;
kernels::DepthwiseConvolutionBackwardWeights DepthwiseConvolutionBackwardWeights;

// optimizer/optimizer.cu
kernels::SgdStep SgdStep;
kernels::AdamWStep AdamWStep;
kernels::SumOfSquares SumOfSquares;
kernels::Lerp Lerp;

// optimizer/lars.cu
kernels::LarsRates LarsRates;
kernels::LarsStep LarsStep;

// optimizer/update.cu
kernels::DrawBlocks DrawBlocks;
kernels::BeginUpdate BeginUpdate;
kernels::RestoreSkipped RestoreSkipped;

// table/kernel_table.cu
extern const KernelTable kKernels;

// convolution/convolution_kernels.cu
extern const ConvolutionKernels kConvolutionKernels;

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CUDA_TABLE_KERNELS_H_
