// Builds a Program: creates tensors for the graph's nodes in the precision's types, and adds
// operations together with the branches that contain them.
#ifndef MUSTER_TRAINER_GRAPH_PROGRAM_BUILDER_H_
#define MUSTER_TRAINER_GRAPH_PROGRAM_BUILDER_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/data_type.h"
#include "kernels/kernel_table.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/operation.h"
#include "trainer/graph/program.h"
#include "trainer/graph/shapes.h"

namespace muster::nn {

class ProgramBuilder {
 public:
  // All arguments except `consumers` must outlive the builder. `activations` is the type of all
  // tensors except the batch and the logits.
  ProgramBuilder(const Graph& graph, const std::vector<ValueShape>& shapes,
                 const std::vector<std::vector<NodeId>>& consumers, kernels::DataType activations,
                 const kernels::KernelTable& kernels);

  FlatLayout& parameters() { return program_.parameters; }
  FlatLayout& buffers() { return program_.buffers; }

  // Type of the output of an operation that ends with node `last`.
  kernels::DataType TypeOf(NodeId last) const;

  // The node's input tensor, which must be lowered already.
  Tensor* Input(NodeId node, size_t index = 0) const;
  // The tensor in the given type, for use by `node`: the tensor itself, or the output of a cast.
  Tensor* As(kernels::DataType type, Tensor* tensor, NodeId node);
  // Adds the output tensor of an operation that ends with node `last`.
  Tensor* AddOutput(NodeId last, bool needs_gradient);
  // Makes the node's output the same tensor as its input.
  void PassOn(NodeId node) { tensor_of_[node] = Input(node); }

  // `first` and `last` are the first and last node that the operation computes.
  Operation* AddOperation(NodeId first, NodeId last, std::unique_ptr<Operation> operation,
                          const std::vector<Operation::Range>& parameters = {});
  // Null for the batch and for values of earlier stages.
  Operation* ProducerOf(const Tensor* tensor) const;

  // The block of a StochasticDepth; null if it never drops anything, and for other nodes.
  const StochasticBlock* BlockOf(NodeId node) const;

  // Name of the nodes: "conv1" or "bn1..relu1".
  std::string Span(NodeId first, NodeId last) const;

  // Called after the last operation was added.
  Program Finish() &&;

 private:
  void AddInputs();
  void MakeBlocks(const std::vector<std::vector<NodeId>>& consumers);
  Tensor* AddTensor(const ImageShape& shape, kernels::DataType type, bool needs_gradient);

  const Graph& graph_;
  const std::vector<ValueShape>& shapes_;
  const kernels::DataType activations_;
  const kernels::KernelTable& kernels_;
  NodeId logits_node_ = kLaterStages;
  std::vector<Tensor*> tensor_of_;  // by node; null for fused nodes except the last
  std::map<const Tensor*, Tensor*> casts_;
  std::map<NodeId, const StochasticBlock*> block_of_;           // by StochasticDepth node
  std::vector<std::vector<const StochasticBlock*>> blocks_of_;  // by node: blocks that contain it
  Program program_;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PROGRAM_BUILDER_H_
