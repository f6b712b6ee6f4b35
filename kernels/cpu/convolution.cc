#include "kernels/convolution.h"

#include <utility>

#include "common/status.h"
#include "kernels/cpu/amx_convolution.h"
#include "kernels/cpu/amx_support.h"
#include "kernels/cpu/casting_convolution.h"
#include "kernels/cpu/depthwise_convolution.h"
#include "kernels/cpu/direct_convolution.h"
#include "kernels/cpu/onednn_convolution.h"
#include "kernels/cpu/tile_convolution.h"
#include "kernels/kernel_table.h"

namespace muster::kernels::cpu {
namespace {

using OrConvolution = absl::StatusOr<std::unique_ptr<Convolution>>;
using Maker = OrConvolution(const ConvolutionShape&, const ConvolutionOptions&, const KernelTable&);

bool IsFloat32(const ConvolutionOptions& options) {
  return options.x_type == DataType::kFloat32 && options.y_type == DataType::kFloat32 &&
         options.compute_type == DataType::kFloat32;
}

OrConvolution MakeInFloat32(Maker* make, const ConvolutionShape& shape,
                            const ConvolutionOptions& options, const KernelTable& kernels) {
  ConvolutionOptions float32 = options;
  float32.x_type = float32.y_type = float32.compute_type = DataType::kFloat32;
  ASSIGN_OR_RETURN(std::unique_ptr<Convolution> convolution, make(shape, float32, kernels));
  if (IsFloat32(options)) return convolution;
  return MakeCastingConvolution(shape, options, kernels, std::move(convolution));
}

// A matrix register holds 16 rows of 32 bfloat16: with fewer channels most of it is padding, but
// that a network's first layer has the columns of its kernel side by side.
bool FitsAmx(const ConvolutionShape& shape, const ConvolutionOptions& options) {
  const int64_t window = shape.kernel * shape.in_channels;
  const bool first = !options.data_gradient && window >= 8 && window <= 32;
  return (shape.in_channels >= 32 || first) && shape.out_channels >= 16 &&
         options.x_type != DataType::kFloat16 && options.y_type != DataType::kFloat16;
}

}  // namespace

OrConvolution MakeConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options) {
  if (!shape.valid() || !options.valid()) {
    return absl::InvalidArgumentError("no such convolution");
  }
  const KernelTable& kernels = CpuKernels();
  if (shape.depthwise()) return MakeDepthwiseConvolution(shape, options, kernels);
  if (IsFloat32(options) && DirectConvolutionFits(shape, options)) {
    return MakeDirectConvolution(shape, options, kernels);
  }
  if (shape.groups > 1) return MakeInFloat32(MakeOneDnnConvolution, shape, options, kernels);
  if (options.compute_type == DataType::kFloat32) {
    return MakeTileConvolution(shape, options, kernels);
  }
  if (options.compute_type == DataType::kBfloat16) {
    if (FitsAmx(shape, options) && HasAmx()) return MakeAmxConvolution(shape, options);
    if (kernels.bfloat16_dot) return MakeTileConvolution(shape, options, kernels);
  }
  return MakeInFloat32(MakeTileConvolution, shape, options, kernels);
}

}  // namespace muster::kernels::cpu
