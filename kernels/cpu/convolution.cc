#include "kernels/convolution.h"

#include "kernels/cpu/direct_convolution.h"
#include "kernels/cpu/onednn_convolution.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {

absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(const ConvolutionShape& shape,
                                                             const ConvolutionOptions& options) {
  if (!shape.valid() || options.max_rows < 1 || options.threads < 1) {
    return absl::InvalidArgumentError("no such convolution");
  }
  if (DirectConvolutionFits(shape, options)) {
    return MakeDirectConvolution(shape, options, CpuKernels());
  }
  return MakeOneDnnConvolution(shape, options, CpuKernels());
}

}  // namespace muster::kernels::cpu
