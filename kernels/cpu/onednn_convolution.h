// Convolution and linear layers by oneDNN.
#ifndef MUSTER_KERNELS_CPU_ONEDNN_CONVOLUTION_H_
#define MUSTER_KERNELS_CPU_ONEDNN_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// `kernels` outlives the convolution; what it computes, it does in the calling thread alone.
absl::StatusOr<std::unique_ptr<Convolution>> MakeOneDnnConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const KernelTable& kernels);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_ONEDNN_CONVOLUTION_H_
