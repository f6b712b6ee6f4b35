// Convolutions by cuDNN.
//
// Weights are OHWI in float32, cast to the compute type with each call. Sums are in float32, from
// products that are of no lower precision than the compute type: no TF32. cuDNN has compiled
// kernels for outputs of its operands' type alone: those of another type, as dweights of a low
// compute type, are rounded to the compute type and then cast.
//
// An engine is chosen per direction and kind of epilogue for max_rows, from those that give the
// same bits every time: the fastest of what cuDNN proposes first, measured once and kept in a
// PlanCache. Other numbers of rows take the same where it serves. Kernels that cuDNN would have to
// compile first, about a second each in every process, are used where nothing else serves. That is
// why of epilogues only
//   activation(sum + addend + shift)
// with a shift and at most a ReLU is fused, of which the library has compiled kernels; the shift is
// rounded to the compute type then. Others are a kernel of ours behind the convolution.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_CONVOLUTION_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/cuda/convolution/cudnn/graph.h"
#include "kernels/cuda/convolution/cudnn/plan_cache.h"
#include "kernels/cuda/convolution/layer_runtime.h"

namespace muster::kernels::cuda {

// Plans for max_rows are made here, in memory of the device that is given back; those for another
// number of rows or for an epilogue with the first call, which waits for the device and must not be
// captured. INVALID_ARGUMENT for an impossible shape, UNIMPLEMENTED where cuDNN has no engine,
// INTERNAL with its word. `plans` outlives the convolution.
absl::StatusOr<std::unique_ptr<Convolution>> MakeCudnnConvolution(const ConvolutionShape& shape,
                                                                  const ConvolutionOptions& options,
                                                                  const LayerRuntime& runtime,
                                                                  const CudnnTarget& target,
                                                                  PlanCache& plans);

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_CONVOLUTION_H_
