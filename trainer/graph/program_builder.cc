#include "trainer/graph/program_builder.h"

#include <algorithm>
#include <cstdint>
#include <variant>

#include "absl/strings/str_cat.h"
#include "trainer/graph/operations/activation.h"

namespace muster::nn {

using kernels::DataType;

ProgramBuilder::ProgramBuilder(const Graph& graph, const std::vector<ValueShape>& shapes,
                               const std::vector<std::vector<NodeId>>& consumers,
                               DataType activations, const kernels::KernelTable& kernels)
    : graph_(graph),
      shapes_(shapes),
      activations_(activations),
      kernels_(kernels),
      tensor_of_(graph.nodes.size(), nullptr) {
  if (graph.outputs.empty()) {
    logits_node_ = static_cast<NodeId>(graph.nodes.size()) - 1;
    // Flatten's output is its input.
    while (logits_node_ > kInput &&
           std::holds_alternative<Flatten>(graph.nodes[logits_node_].layer)) {
      logits_node_ = graph.nodes[logits_node_].inputs[0];
    }
  }
  AddInputs();
  MakeBlocks(consumers);
}

void ProgramBuilder::AddInputs() {
  for (const EarlierValue& value : graph_.inputs) {
    Tensor* const tensor = AddTensor(value.shape.image, activations_, value.needs_gradient);
    program_.inputs.push_back({.name = value.name, .tensor = tensor});
  }
  if (graph_.inputs.empty()) program_.input = AddTensor(graph_.input, DataType::kFloat32, false);
}

// The branch of a stochastic depth consists of all nodes that lead only into it.
void ProgramBuilder::MakeBlocks(const std::vector<std::vector<NodeId>>& consumers) {
  blocks_of_.resize(graph_.nodes.size());
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const auto* const layer = std::get_if<StochasticDepth>(&graph_.nodes[i].layer);
    if (layer == nullptr || layer->probability == 0) continue;
    program_.blocks.push_back(std::make_unique<StochasticBlock>(
        StochasticBlock{.draw = {.node = static_cast<uint32_t>(graph_.first_node + i),
                                 .probability = layer->probability}}));
    const StochasticBlock* const block = program_.blocks.back().get();
    block_of_[static_cast<NodeId>(i)] = block;
    const std::vector<bool> inside = LeadingOnlyInto(static_cast<NodeId>(i), consumers);
    for (size_t node = 0; node < i; ++node) {
      if (inside[node]) blocks_of_[node].push_back(block);
    }
  }
  // The enclosing blocks come later in the order.
  for (const auto& block : program_.blocks) {
    const auto& around = blocks_of_[block->draw.node - graph_.first_node];
    if (around.empty()) continue;
    const auto is_next = [&](const auto& other) { return other.get() == around.front(); };
    block->draw.around =
        static_cast<int32_t>(std::find_if(program_.blocks.begin(), program_.blocks.end(), is_next) -
                             program_.blocks.begin());
  }
}

const StochasticBlock* ProgramBuilder::BlockOf(NodeId node) const {
  const auto found = block_of_.find(node);
  return found == block_of_.end() ? nullptr : found->second;
}

DataType ProgramBuilder::TypeOf(NodeId last) const {
  return last == logits_node_ ? DataType::kFloat32 : activations_;
}

Tensor* ProgramBuilder::Input(NodeId node, size_t index) const {
  const NodeId from = graph_.nodes[node].inputs[index];
  if (IsEarlierValue(from)) return program_.inputs[EarlierValueIndex(from)].tensor;
  return from == kInput ? program_.input : tensor_of_[from];
}

Tensor* ProgramBuilder::As(DataType type, Tensor* tensor, NodeId node) {
  if (tensor->type == type) return tensor;
  Tensor*& cast = casts_[tensor];
  if (cast != nullptr) return cast;
  const Operation* const producer = ProducerOf(tensor);
  cast = AddTensor(tensor->shape, type, tensor->needs_gradient);
  std::unique_ptr<Operation> operation =
      MakeCastOperation(absl::StrCat(producer == nullptr ? "input" : producer->name(), ".cast"),
                        tensor, cast, kernels_);
  operation->set_nodes(graph_.first_node + node, graph_.first_node + node);
  // The cast is in the same branches as its producer: a skipped branch does not need it.
  if (producer != nullptr) {
    for (const StochasticBlock* block : producer->blocks()) operation->AddBlock(block);
  }
  program_.operations.push_back(std::move(operation));
  return cast;
}

Operation* ProgramBuilder::ProducerOf(const Tensor* tensor) const {
  for (const auto& operation : program_.operations) {
    if (operation->output() == tensor) return operation.get();
  }
  return nullptr;
}

Tensor* ProgramBuilder::AddTensor(const ImageShape& shape, DataType type, bool needs_gradient) {
  program_.tensors.push_back(std::make_unique<Tensor>());
  Tensor* const tensor = program_.tensors.back().get();
  tensor->shape = shape;
  tensor->type = type;
  tensor->needs_gradient = needs_gradient;
  return tensor;
}

Tensor* ProgramBuilder::AddOutput(NodeId last, bool needs_gradient) {
  tensor_of_[last] = AddTensor(shapes_[last].image, TypeOf(last), needs_gradient);
  return tensor_of_[last];
}

Operation* ProgramBuilder::AddOperation(NodeId first, NodeId last,
                                        std::unique_ptr<Operation> operation,
                                        const std::vector<Operation::Range>& parameters) {
  operation->set_nodes(graph_.first_node + first, graph_.first_node + last);
  for (const Operation::Range& range : parameters) operation->AddParameters(range);
  for (const StochasticBlock* block : blocks_of_[last]) operation->AddBlock(block);
  program_.operations.push_back(std::move(operation));
  return program_.operations.back().get();
}

std::string ProgramBuilder::Span(NodeId first, NodeId last) const {
  if (first == last) return graph_.nodes[first].name;
  return absl::StrCat(graph_.nodes[first].name, "..", graph_.nodes[last].name);
}

Program ProgramBuilder::Finish() && {
  for (const NodeId output : graph_.outputs) {
    program_.outputs.push_back(IsEarlierValue(output)
                                   ? program_.inputs[EarlierValueIndex(output)]
                                   : Boundary{graph_.nodes[output].name, tensor_of_[output]});
  }
  if (graph_.outputs.empty()) program_.logits = tensor_of_.back();
  return std::move(program_);
}

}  // namespace muster::nn
