// Elementwise operations on one input: ReLU, ReLU6 and dropout.
#ifndef MUSTER_WORKER_NN_OPERATIONS_ACTIVATION_H_
#define MUSTER_WORKER_NN_OPERATIONS_ACTIVATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/kernel_table.h"
#include "worker/nn/operation.h"

namespace muster::nn {

// kRelu or kRelu6.
std::unique_ptr<Operation> MakeActivationOperation(std::string name, Tensor* input, Tensor* output,
                                                   kernels::Activation activation,
                                                   const kernels::KernelTable& kernels);

// `index` tells the dropouts of one model apart.
std::unique_ptr<Operation> MakeDropoutOperation(std::string name, Tensor* input, Tensor* output,
                                                double probability, uint32_t index,
                                                const kernels::KernelTable& kernels);

// What follows a layer's own name in an operation's kind: "", " + relu" or " + relu6".
const char* FusedName(kernels::Activation activation);

// Changes dy [count], the gradient of an activation's output y, to that of its input.
void ActivationBackward(const kernels::KernelTable& kernels, kernels::Activation activation,
                        size_t count, const float* y, float* dy);

}  // namespace muster::nn

#endif  // MUSTER_WORKER_NN_OPERATIONS_ACTIVATION_H_
