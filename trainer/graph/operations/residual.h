// The end of a residual block: the sum of branch and shortcut, fused with stochastic depth and the
// activation that may follow.
#ifndef MUSTER_TRAINER_GRAPH_OPERATIONS_RESIDUAL_H_
#define MUSTER_TRAINER_GRAPH_OPERATIONS_RESIDUAL_H_

#include <memory>
#include <string>

#include "kernels/kernel_table.h"
#include "trainer/graph/operation.h"

namespace muster::nn {

// `block` is null if the branch is never dropped.
std::unique_ptr<Operation> MakeAddOperation(std::string name, Tensor* branch, Tensor* shortcut,
                                            Tensor* output, kernels::Activation activation,
                                            const StochasticBlock* block,
                                            const kernels::KernelTable& kernels);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_OPERATIONS_RESIDUAL_H_
