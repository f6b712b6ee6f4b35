// The depthwise Convolution by our own kernels.
#ifndef MUSTER_KERNELS_CPU_DEPTHWISE_CONVOLUTION_H_
#define MUSTER_KERNELS_CPU_DEPTHWISE_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// INVALID_ARGUMENT for an impossible shape and for one that is not depthwise. `kernels` outlives
// the convolution.
absl::StatusOr<std::unique_ptr<Convolution>> MakeDepthwiseConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const KernelTable& kernels);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_DEPTHWISE_CONVOLUTION_H_
