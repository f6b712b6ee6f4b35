// Linear layers with cuBLASLt.
//
// Weights are [out_channels, in_channels] in the compute type, their gradients in float32.
// Accumulation is in float32 from exact products, or from products of TF32 operands if the device's
// Numerics allow it. The epilogue
//   activation(sum + addend + shift)
// is fused into the product if its activation is ReLU or none; the shift is rounded to the type of
// y. Other epilogues are a separate kernel. The gradient of the bias is fused into that of the
// weights.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CUBLASLT_LINEAR_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CUBLASLT_LINEAR_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/cuda/convolution/layer_runtime.h"
#include "kernels/cuda/library/cublaslt.h"

namespace muster::kernels::cuda {

// Whether the convolution is a linear layer: 1x1 on 1x1 images, without padding or groups.
bool IsLinear(const ConvolutionShape& shape);

// Algorithms for max_samples are chosen here, those for another number of samples with the first
// call that has it. Errors: INVALID_ARGUMENT if the shape is not linear, UNIMPLEMENTED if cuBLASLt
// has no algorithm for max_samples, INTERNAL for other errors of cuBLASLt, with its text.
absl::StatusOr<std::unique_ptr<Convolution>> MakeCublasLtLinear(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const LayerRuntime& runtime,
    const CublasLt& cublaslt, CublasLtHandle handle, void* stream);

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUBLASLT_LINEAR_H_
