// A convolution or linear layer, with the ReLU that may follow it.
#ifndef MUSTER_WORKER_NN_OPERATIONS_CONVOLUTION_H_
#define MUSTER_WORKER_NN_OPERATIONS_CONVOLUTION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kernels/convolution.h"
#include "kernels/kernel_table.h"
#include "worker/nn/operation.h"

namespace muster::nn {

struct ConvolutionParts {
  std::unique_ptr<kernels::Convolution> convolution;
  kernels::ConvolutionShape shape;
  bool linear = false;  // its name for people
  bool relu = false;    // as the convolution's own options say
  size_t weight_offset = 0;
  std::optional<size_t> bias_offset;
};

std::unique_ptr<Operation> MakeConvolutionOperation(std::string name, Tensor* input, Tensor* output,
                                                    ConvolutionParts parts,
                                                    const kernels::KernelTable& kernels);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_OPERATIONS_CONVOLUTION_H_
