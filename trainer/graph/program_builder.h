// A program in the making: its tensors by the graph's nodes and in the precision's types, and its
// operations in the branches that they are a part of.
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
  // What is handed in outlives this, but for the consumers. `activations` is the type of all but
  // the batch and the logits.
  ProgramBuilder(const Graph& graph, const std::vector<ValueShape>& shapes,
                 const std::vector<std::vector<NodeId>>& consumers, kernels::DataType activations,
                 const kernels::KernelTable& kernels);

  FlatLayout& parameters() { return program_.parameters; }
  FlatLayout& buffers() { return program_.buffers; }

  // Of the output of an operation that ends with this node.
  kernels::DataType TypeOf(NodeId last) const;

  // What the node takes; lowered already.
  Tensor* Input(NodeId node, size_t index = 0) const;
  // The tensor's values in this type, for the node that takes them: the tensor itself, or what an
  // operation casts it to.
  Tensor* As(kernels::DataType type, Tensor* tensor, NodeId node);
  // What an operation gives that ends with this node.
  Tensor* AddOutput(NodeId last, bool needs_gradient);
  // The node gives what it takes.
  void PassOn(NodeId node) { tensor_of_[node] = Input(node); }

  // `first` and `last` are of the nodes that the operation computes.
  Operation* AddOperation(NodeId first, NodeId last, std::unique_ptr<Operation> operation,
                          const std::vector<Operation::Range>& parameters = {});
  // Null of the batch and of earlier parts' values.
  Operation* ProducerOf(const Tensor* tensor) const;

  // Of a StochasticDepth; null where it never drops anything, and of other nodes.
  const StochasticBlock* BlockOf(NodeId node) const;

  // "conv1" or "bn1..relu1".
  std::string Span(NodeId first, NodeId last) const;

  // After the last operation.
  Program Finish() &&;

 private:
  void AddInputs();
  void MakeBlocks(const std::vector<std::vector<NodeId>>& consumers);
  Tensor* AddTensor(const ImageShape& shape, kernels::DataType type, bool needs_gradient);

  const Graph& graph_;
  const std::vector<ValueShape>& shapes_;
  const kernels::DataType activations_;
  const kernels::KernelTable& kernels_;
  NodeId logits_node_ = kLaterParts;
  std::vector<Tensor*> tensor_of_;  // by node; of fused ones only the last has one
  std::map<const Tensor*, Tensor*> casts_;
  std::map<NodeId, const StochasticBlock*> block_of_;           // by StochasticDepth node
  std::vector<std::vector<const StochasticBlock*>> blocks_of_;  // by node: those it lies in
  Program program_;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PROGRAM_BUILDER_H_
