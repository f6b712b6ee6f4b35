// Elementwise operations on one input: ReLU, ReLU6, dropout, and casts between types.
#ifndef MUSTER_TRAINER_GRAPH_OPERATIONS_ACTIVATION_H_
#define MUSTER_TRAINER_GRAPH_OPERATIONS_ACTIVATION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "kernels/kernel_table.h"
#include "trainer/graph/operation.h"

namespace muster::nn {

// `activation` is kRelu or kRelu6.
std::unique_ptr<Operation> MakeActivationOperation(std::string name, Tensor* input, Tensor* output,
                                                   kernels::Activation activation,
                                                   const kernels::KernelTable& kernels);

// `index` identifies the dropout within the model.
std::unique_ptr<Operation> MakeDropoutOperation(std::string name, Tensor* input, Tensor* output,
                                                double probability, uint32_t index,
                                                kernels::Device& device);

// Casts from the input's type to the output's, and the gradient back.
std::unique_ptr<Operation> MakeCastOperation(std::string name, Tensor* input, Tensor* output,
                                             const kernels::KernelTable& kernels);

// Suffix of an operation's kind for a fused activation: "", " + relu" or " + relu6".
const char* FusedName(kernels::Activation activation);

// Transforms y.gradient, the gradient of an activation's output y for `samples` samples, in place
// into that of the activation's input.
void ActivationBackward(const kernels::KernelTable& kernels, kernels::Activation activation,
                        uint32_t samples, const Tensor& y);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_OPERATIONS_ACTIVATION_H_
