// Convolution and linear layers by oneDNN.
#ifndef MUSTER_KERNELS_CPU_ONEDNN_CONVOLUTION_H_
#define MUSTER_KERNELS_CPU_ONEDNN_CONVOLUTION_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

// In float32 the three types are float32. In bfloat16 the compute type is, groups are 1, and x and
// y are stored as bfloat16 or float32; weights and dweights are float32 in the panels of
// kernels/tile_convolution.h, and an epilogue but for a bias is applied after y was rounded to its
// type. INVALID_ARGUMENT for other types, or where oneDNN has none for this processor. `kernels`
// outlives the convolution; what it computes, it does in the calling thread alone.
absl::StatusOr<std::unique_ptr<Convolution>> MakeOneDnnConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const KernelTable& kernels);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_ONEDNN_CONVOLUTION_H_
