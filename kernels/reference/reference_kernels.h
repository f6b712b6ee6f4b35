// The operations of KernelTable, implemented as defined: no fusion, no vectors, sums in double.
#ifndef MUSTER_KERNELS_REFERENCE_REFERENCE_KERNELS_H_
#define MUSTER_KERNELS_REFERENCE_REFERENCE_KERNELS_H_

#include "kernels/kernel_table.h"

namespace muster::kernels::reference {

// batch_norm.cc
kernels::BatchNormStatistics BatchNormStatistics;
kernels::BatchNormScale BatchNormScale;
kernels::BatchNormToSums BatchNormToSums;
kernels::BatchNormFromSums BatchNormFromSums;
kernels::BatchNormRunning BatchNormRunning;
kernels::BatchNormPrepare BatchNormPrepare;
kernels::BatchNormMaskBytes BatchNormMaskBytes;
kernels::BatchNormPoolBytes BatchNormPoolBytes;
kernels::BatchNormApply BatchNormApply;
kernels::BatchNormBackwardParameters BatchNormBackwardParameters;
kernels::BatchNormBackwardData BatchNormBackwardData;

// pooling.cc
kernels::MaxPoolForward MaxPoolForward;
kernels::MaxPoolBackward MaxPoolBackward;
kernels::AveragePoolForward AveragePoolForward;
kernels::AveragePoolBackward AveragePoolBackward;

// activation.cc
kernels::ActivationForward ActivationForward;
kernels::ActivationBackward ActivationBackward;
kernels::AddForward AddForward;
kernels::Accumulate Accumulate;
kernels::ScaledCopy ScaledCopy;

// cast.cc
kernels::Cast Cast;
kernels::CastRanges CastRanges;
kernels::AllFinite AllFinite;

// resize.cc
kernels::Resize Resize;
kernels::LoadImages LoadImages;

// nt_xent.cc
kernels::L2NormalizeForward L2NormalizeForward;
kernels::L2NormalizeBackward L2NormalizeBackward;
kernels::NtXentForward NtXentForward;
kernels::NtXentBackward NtXentBackward;

// depthwise_convolution.cc
kernels::DepthwiseConvolutionForward DepthwiseConvolutionForward;
kernels::DepthwiseConvolutionBackwardData DepthwiseConvolutionBackwardData;
kernels::DepthwiseConvolutionBackwardWeights DepthwiseConvolutionBackwardWeights;

// optimizer.cc
kernels::SgdStep SgdStep;
kernels::AdamWStep AdamWStep;
kernels::SumOfSquares SumOfSquares;
kernels::Lerp Lerp;

kernels::LarsRates LarsRates;
kernels::LarsStep LarsStep;

// update.cc
kernels::DrawBlocks DrawBlocks;
kernels::BeginUpdate BeginUpdate;
kernels::RestoreSkipped RestoreSkipped;

}  // namespace muster::kernels::reference

#endif  // MUSTER_KERNELS_REFERENCE_REFERENCE_KERNELS_H_
