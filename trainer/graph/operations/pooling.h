// Max pooling, alone or fused with the ReLU before it, and average pooling.
#ifndef MUSTER_TRAINER_GRAPH_OPERATIONS_POOLING_H_
#define MUSTER_TRAINER_GRAPH_OPERATIONS_POOLING_H_

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/kernel_table.h"
#include "trainer/graph/operation.h"

namespace muster::nn {

std::unique_ptr<Operation> MakeMaxPoolOperation(std::string name, Tensor* input, Tensor* output,
                                                const MaxPool2d& layer, bool relu,
                                                const kernels::KernelTable& kernels);

// A kernel of the size of the image gives global pooling.
std::unique_ptr<Operation> MakeAveragePoolOperation(std::string name, Tensor* input, Tensor* output,
                                                    int64_t kernel_height, int64_t kernel_width,
                                                    int64_t stride,
                                                    const kernels::KernelTable& kernels);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_OPERATIONS_POOLING_H_
