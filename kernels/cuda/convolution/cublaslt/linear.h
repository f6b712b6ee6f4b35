// Linear layers by cuBLASLt.
//
// Weights are [out_channels, in_channels] in float32, cast to the compute type with each call. Sums
// are in float32, products exact: no TF32. Of epilogues
//   activation(sum + addend + shift)
// with at most a ReLU is part of the product, the shift rounded to the type of y then; others are a
// kernel of ours behind it. The gradient of the bias is part of that of the weights.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CUBLASLT_LINEAR_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CUBLASLT_LINEAR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/cuda/convolution/layer_runtime.h"
#include "kernels/cuda/library/cublaslt.h"

namespace muster::kernels::cuda {

// That the convolution is a matrix product of its rows.
bool IsLinear(const ConvolutionShape& shape);

// The algorithm for a number of rows is asked for with the first call of it. INVALID_ARGUMENT for
// another shape, UNIMPLEMENTED where cuBLASLt has no algorithm for max_rows, INTERNAL with its
// word.
absl::StatusOr<std::unique_ptr<Convolution>> MakeCublasLtLinear(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const LayerRuntime& runtime,
    const CublasLt& cublaslt, CublasLtHandle handle, void* stream);

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUBLASLT_LINEAR_H_
