#include "kernels/cpu/convolution/convolution.h"

#include <utility>

#include "common/status.h"
#include "kernels/cpu/convolution/amx/engine.h"
#include "kernels/cpu/convolution/amx/support.h"
#include "kernels/cpu/convolution/dense_kernels.h"
#include "kernels/cpu/convolution/depthwise/engine.h"
#include "kernels/cpu/convolution/direct/engine.h"
#include "kernels/cpu/convolution/engine.h"
#include "kernels/cpu/convolution/tile/engine.h"

namespace muster::kernels::cpu {
namespace {

// A matrix register holds 16 rows of 32 bfloat16: with fewer channels most of it is padding, except
// in a network's first layer, whose kernel columns are contiguous.
bool FitsAmx(const ConvolutionShape& shape, const ConvolutionOptions& options) {
  const int64_t window = shape.kernel * shape.in_channels;
  const bool first = !options.data_gradient && window >= 8 && window <= 32;
  return (shape.in_channels >= 32 || first) && shape.out_channels >= 16 &&
         options.x_type != DataType::kFloat16 && options.y_type != DataType::kFloat16;
}

// For one group, or for a depthwise convolution.
std::unique_ptr<ConvolutionEngine> ChooseEngine(const ConvolutionShape& shape,
                                                const ConvolutionOptions& options,
                                                InstructionSet set) {
  if (shape.depthwise()) return MakeDepthwiseEngine(shape, options, CpuKernels(set));
  const DenseKernels& dense = DenseKernelsOf(set);
  if (DirectEngineFits(shape, options)) {
    return MakeDirectEngine(shape, CpuKernels(set), dense);
  }
  if (options.compute_type == DataType::kBfloat16 && dense.bfloat16_dot) {
    if (FitsAmx(shape, options) && HasAmx()) return MakeAmxEngine(shape, options);
    return MakeTileEngine(shape, options, dense);
  }
  ConvolutionOptions float32 = options;
  float32.compute_type = DataType::kFloat32;
  return MakeTileEngine(shape, float32, dense);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(const ConvolutionShape& shape,
                                                             const ConvolutionOptions& options,
                                                             InstructionSet set) {
  if (!shape.valid() || !options.valid()) {
    return absl::InvalidArgumentError("invalid convolution shape or options");
  }
  if (shape.groups == 1 || shape.depthwise()) {
    return LowerConvolution(shape, options, CpuKernels(set), ChooseEngine(shape, options, set));
  }
  ConvolutionShape group = shape;
  group.groups = 1;
  group.in_channels /= shape.groups;
  group.out_channels /= shape.groups;
  ASSIGN_OR_RETURN(auto of_group, MakeConvolution(group, options, set));
  return MakeGroupedConvolution(shape, options, std::move(of_group));
}

}  // namespace muster::kernels::cpu
