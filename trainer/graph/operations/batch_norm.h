// Batch norm, fused with the layers that may follow it: the sum at the end of a residual block, the
// activation, and the max pooling. Its statistics cover this call's samples or, with a reducer,
// the samples of all ranks.
//
// In evaluation the statistics are constants, and batch norm is folded into the convolution before
// it.
#ifndef MUSTER_TRAINER_GRAPH_OPERATIONS_BATCH_NORM_H_
#define MUSTER_TRAINER_GRAPH_OPERATIONS_BATCH_NORM_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "kernels/device.h"
#include "trainer/graph/operation.h"
#include "trainer/graph/operations/convolution.h"

namespace muster::nn {

struct BatchNormParts {
  BatchNorm2d layer;
  // y = pool(activation(normalised + addend)).
  Tensor* addend = nullptr;                // the shortcut of a residual block; null: none
  const StochasticBlock* block = nullptr;  // may drop the normalised values; requires an addend
  kernels::Activation activation = kernels::Activation::kNone;
  // Requires kRelu and no addend; windows other than 2x2 also require kernels that fuse them.
  std::optional<MaxPool2d> pool;
  // The operation that computes the output's values in training, and both batch norms' backward:
  // this one, or the batch norm of which the output is the addend. kSum requires none of the above.
  enum class AppliedBy { kItself, kSum };
  AppliedBy applied_by = AppliedBy::kItself;
  // The operation of the addend if that is applied by this one; null: none.
  const Operation* shortcut = nullptr;
  size_t weight_offset = 0;
  size_t bias_offset = 0;
  size_t running_mean_offset = 0;  // in the buffers
  size_t running_variance_offset = 0;
};

// A convolution without an activation whose output is used only by the batch norm.
struct FoldedConvolution {
  std::shared_ptr<const ConvolutionParts> parts;
  Tensor* input = nullptr;
  std::string name;
};

// `folded`, if it has parts, is the convolution that evaluation computes in this operation, from
// the convolution's own input; not valid with a pool. Input, output and addend have one type.
std::unique_ptr<Operation> MakeBatchNormOperation(std::string name, Tensor* input, Tensor* output,
                                                  const BatchNormParts& parts,
                                                  FoldedConvolution folded,
                                                  kernels::Device& device);

// For plans without training.
std::unique_ptr<Operation> MakeFoldedConvolutionOperation(std::string name, Tensor* output,
                                                          const BatchNormParts& parts,
                                                          FoldedConvolution folded,
                                                          kernels::Device& device);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_OPERATIONS_BATCH_NORM_H_
