// A convolution or linear layer, fused with the activation that may follow it.
#ifndef MUSTER_TRAINER_GRAPH_OPERATIONS_CONVOLUTION_H_
#define MUSTER_TRAINER_GRAPH_OPERATIONS_CONVOLUTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/convolution.h"
#include "kernels/kernel_table.h"
#include "trainer/graph/operation.h"

namespace muster::nn {

struct ConvolutionParts {
  std::unique_ptr<kernels::Convolution> convolution;
  kernels::ConvolutionShape shape;
  kernels::DataType compute_type = kernels::DataType::kFloat32;  // as in the convolution's options
  bool linear = false;                                           // affects only the displayed name
  kernels::Activation activation = kernels::Activation::kNone;
  bool compact_data_gradient = false;  // as in the convolution's options
  size_t weight_offset = 0;
  std::optional<size_t> bias_offset;

  int64_t forward_flops() const { return 2 * shape.output_elements() * shape.fan_in(); }
  // In the convolution's type.
  const void* weights(const Call& call) const {
    const kernels::DataType type = convolution->weights_type();
    if (type == kernels::DataType::kFloat32) return call.parameters + weight_offset;
    return static_cast<const std::byte*>(call.cast_parameters) +
           weight_offset * kernels::SizeOf(type);
  }
  bool reads_cast_weights() const {
    return convolution->weights_type() != kernels::DataType::kFloat32;
  }
  const float* bias(const Call& call) const {
    return bias_offset ? call.parameters + *bias_offset : nullptr;
  }
};

std::unique_ptr<Operation> MakeConvolutionOperation(std::string name, Tensor* input, Tensor* output,
                                                    std::shared_ptr<const ConvolutionParts> parts,
                                                    const kernels::KernelTable& kernels);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_OPERATIONS_CONVOLUTION_H_
