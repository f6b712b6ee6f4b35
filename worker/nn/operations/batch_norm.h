// Batch norm with the activation and the 2x2 max pooling that may follow it. Its statistics are of
// this call's rows, or, given a reducer, of all ranks' rows.
#ifndef MUSTER_WORKER_NN_OPERATIONS_BATCH_NORM_H_
#define MUSTER_WORKER_NN_OPERATIONS_BATCH_NORM_H_

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/kernel_table.h"
#include "worker/nn/operation.h"

namespace muster::nn {

struct BatchNormParts {
  BatchNorm2d layer;
  kernels::Activation activation = kernels::Activation::kNone;
  bool pool = false;  // needs kRelu
  size_t weight_offset = 0;
  size_t bias_offset = 0;
  size_t running_mean_offset = 0;  // in the buffers
  size_t running_variance_offset = 0;
};

std::unique_ptr<Operation> MakeBatchNormOperation(std::string name, Tensor* input, Tensor* output,
                                                  const BatchNormParts& parts,
                                                  const kernels::KernelTable& kernels);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_OPERATIONS_BATCH_NORM_H_
