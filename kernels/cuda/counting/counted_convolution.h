// Convolutions and linear layers of a GPU that record launches.
#ifndef MUSTER_KERNELS_CUDA_COUNTING_COUNTED_CONVOLUTION_H_
#define MUSTER_KERNELS_CUDA_COUNTING_COUNTED_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"

namespace muster::kernels {

// A run of cuDNN or cuBLASLt counts as one launch; engines that add up partial results have more.
// Assumes what is the case on an H100 and an H200: cuDNN has no precompiled engine whose output is
// of another type than the operands, and both libraries fuse a shift, an addend and a ReLU.
// trainer/graph:launch_counter_test compares the launches with those of the real layers on fake
// libraries.
// INVALID_ARGUMENT for an invalid shape.
absl::StatusOr<std::unique_ptr<Convolution>> MakeCountedConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_COUNTING_COUNTED_CONVOLUTION_H_
