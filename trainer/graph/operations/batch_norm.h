// Batch norm with what may follow it: the sum at the end of a residual block, the activation, and
// the 2x2 max pooling. Its statistics are of this call's rows, or, given a reducer, of all ranks'
// rows.
//
// In evaluation the statistics are known beforehand, and the convolution before it computes it
// along with its own sums.
#ifndef MUSTER_TRAINER_GRAPH_OPERATIONS_BATCH_NORM_H_
#define MUSTER_TRAINER_GRAPH_OPERATIONS_BATCH_NORM_H_

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "trainer/graph/operation.h"
#include "trainer/graph/operations/convolution.h"

namespace muster::nn {

struct BatchNormParts {
  BatchNorm2d layer;
  // y = pool(activation(normalised + addend)).
  Tensor* addend = nullptr;                // the shortcut of a residual block; null: none
  const StochasticBlock* block = nullptr;  // that may drop the normalised values; needs an addend
  kernels::Activation activation = kernels::Activation::kNone;
  bool pool = false;  // needs kRelu, and no addend
  size_t weight_offset = 0;
  size_t bias_offset = 0;
  size_t running_mean_offset = 0;  // in the buffers
  size_t running_variance_offset = 0;
};

// A convolution without an activation whose output only the batch norm takes.
struct FoldedConvolution {
  std::shared_ptr<const ConvolutionParts> parts;
  Tensor* input = nullptr;
  std::string name;
};

// `folded`, where it has parts, is what evaluation computes here, from that convolution's own
// input; without a pool only. Input, output and addend are of one type.
std::unique_ptr<Operation> MakeBatchNormOperation(std::string name, Tensor* input, Tensor* output,
                                                  const BatchNormParts& parts,
                                                  FoldedConvolution folded,
                                                  kernels::Device& device);

// For plans that only evaluate.
std::unique_ptr<Operation> MakeFoldedConvolutionOperation(std::string name, Tensor* output,
                                                          const BatchNormParts& parts,
                                                          FoldedConvolution folded,
                                                          kernels::Device& device);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_OPERATIONS_BATCH_NORM_H_
