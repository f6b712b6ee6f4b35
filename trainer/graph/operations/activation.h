// Elementwise operations on one input: ReLU, ReLU6, dropout, and the change of an activation's
// type.
#ifndef MUSTER_TRAINER_GRAPH_OPERATIONS_ACTIVATION_H_
#define MUSTER_TRAINER_GRAPH_OPERATIONS_ACTIVATION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "kernels/kernel_table.h"
#include "trainer/graph/operation.h"

namespace muster::nn {

// kRelu or kRelu6.
std::unique_ptr<Operation> MakeActivationOperation(std::string name, Tensor* input, Tensor* output,
                                                   kernels::Activation activation,
                                                   const kernels::KernelTable& kernels);

// `index` tells the dropouts of one model apart.
std::unique_ptr<Operation> MakeDropoutOperation(std::string name, Tensor* input, Tensor* output,
                                                double probability, uint32_t index,
                                                kernels::Device& device);

// From the input's type to the output's, and back for the gradient.
std::unique_ptr<Operation> MakeCastOperation(std::string name, Tensor* input, Tensor* output,
                                             const kernels::KernelTable& kernels);

// What follows a layer's own name in an operation's kind: "", " + relu" or " + relu6".
const char* FusedName(kernels::Activation activation);

// Changes the gradient of a tensor of `rows` rows that an activation gave to that of the
// activation's input.
void ActivationBackward(const kernels::KernelTable& kernels, kernels::Activation activation,
                        uint32_t rows, const Tensor& y);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_OPERATIONS_ACTIVATION_H_
