// Convolutions with cuDNN.
//
// Weights and their gradients are OHWI in the compute type. Accumulation is in float32, from
// products of no lower precision than the compute type, or TF32 if the device's Numerics allow it.
// cuDNN has precompiled kernels only for outputs of the operands' type. Activations of another type
// are therefore rounded to the compute type and then cast, and the weights' gradients are rounded to
// it.
//
// For each direction and kind of epilogue, an engine is chosen for max_samples among those that the
// Numerics allow: the fastest of the first that cuDNN proposes, measured once and stored in a
// PlanCache. Other numbers of samples use the same engine if it supports them. Engines that cuDNN
// compiles at run time, which takes about a second per process and engine, are used only if there
// is no other. For this reason, only the epilogue
//   activation(sum + addend + shift)
// is fused, with a shift and with ReLU or no activation: cuDNN has precompiled kernels for it. The
// shift is then rounded to the compute type. Other epilogues are a separate kernel after the
// convolution.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_CONVOLUTION_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/cuda/convolution/cudnn/graph.h"
#include "kernels/cuda/convolution/cudnn/plan_cache.h"
#include "kernels/cuda/convolution/layer_runtime.h"

namespace muster::kernels::cuda {

// Plans for max_samples are built and measured here, in temporary device memory. Plans for another
// number of samples or for an epilogue are built with the first call that needs them, which waits
// for the device and must not be captured. Errors: INVALID_ARGUMENT for an invalid shape,
// UNIMPLEMENTED if cuDNN has no engine, INTERNAL for other errors of cuDNN, with its text. `plans`
// outlives the convolution.
absl::StatusOr<std::unique_ptr<Convolution>> MakeCudnnConvolution(const ConvolutionShape& shape,
                                                                  const ConvolutionOptions& options,
                                                                  const LayerRuntime& runtime,
                                                                  const CudnnTarget& target,
                                                                  PlanCache& plans);

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_CONVOLUTION_H_
