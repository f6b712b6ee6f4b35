#include "worker/nn/lowering.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "kernels/convolution.h"
#include "kernels/kernel_table.h"
#include "worker/nn/operations/activation.h"
#include "worker/nn/operations/batch_norm.h"
#include "worker/nn/operations/convolution.h"
#include "worker/nn/operations/pooling.h"
#include "worker/nn/operations/residual.h"
#include "worker/nn/parameter_layouts.h"
#include "worker/nn/shapes.h"

namespace muster::nn {
namespace {

using kernels::Activation;
using kernels::ConvolutionShape;
using kernels::KernelTable;

// Far beyond any machine's memory, and far below what overflows once sizes are added up in bytes.
constexpr int64_t kMaxActivationElements = int64_t{1} << 36;

// How a convolution or linear layer starts out.
struct Initials {
  Initial weight;
  Initial bias;
};

template <typename L>
Initials InitialsOf(const L& layer, const ConvolutionShape& shape) {
  switch (layer.initialization) {
    case Initialization::kKaimingNormalFanOut: {
      // PyTorch's fan out does not heed groups.
      const double fan_out = static_cast<double>(shape.out_channels * shape.kernel * shape.kernel);
      return {.weight = Initial::Normal(std::sqrt(2.0 / fan_out))};
    }
    case Initialization::kNormal:
      return {.weight = Initial::Normal(layer.standard_deviation)};
    case Initialization::kPyTorchDefault:
      break;
  }
  // kaiming_uniform(a = sqrt(5)) of PyTorch comes to the bias's own bound.
  const Initial uniform = Initial::Uniform(1.0 / std::sqrt(static_cast<double>(shape.fan_in())));
  return {.weight = uniform, .bias = uniform};
}

bool Is2x2(const MaxPool2d& pool) {
  return pool.kernel == 2 && pool.stride == 2 && pool.padding == 0;
}

class Lowering {
 public:
  Lowering(const Graph& graph, const CompileOptions& options, std::vector<ValueShape> shapes)
      : graph_(graph),
        options_(options),
        shapes_(std::move(shapes)),
        kernels_(options.reference ? kernels::ReferenceKernels() : kernels::CpuKernels()),
        consumers_(Consumers(graph)),
        tensor_of_(graph.nodes.size(), nullptr) {}

  absl::StatusOr<Program> Run() && {
    AddTensor(graph_.input, false);
    MakeBlocks();
    std::vector<bool> done(graph_.nodes.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (done[i]) continue;
      const NodeId node = static_cast<NodeId>(i);
      const absl::StatusOr<NodeId> last = std::visit(
          [&](const auto& layer) { return LowerLayer(node, layer); }, graph_.nodes[i].layer);
      if (!last.ok()) {
        return Annotate(last.status(), absl::StrCat("layer ", graph_.nodes[i].name));
      }
      for (NodeId fused = node; fused != *last; fused = consumers_[fused][0]) done[fused] = true;
      done[*last] = true;
    }
    program_.logits = tensor_of_.back();
    if (options_.training && !program_.logits->needs_gradient) {
      return absl::InvalidArgumentError("a graph without parameters cannot be trained");
    }
    return std::move(program_);
  }

 private:
  static constexpr NodeId kNone = -2;

  // Each of these lowers the node, and those after it that fuse with it, and returns the last one
  // lowered.

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Conv2d& layer) {
    const ImageShape& in = Input(node)->shape;
    // Pooling takes the ReLU before it along.
    const NodeId relu = Next<Relu>(node);
    const NodeId last = relu != kNone && Next<MaxPool2d>(relu) == kNone ? relu : node;
    return LowerConvolution(node, last, layer,
                            {.height = in.height,
                             .width = in.width,
                             .in_channels = in.channels,
                             .out_channels = layer.out_channels,
                             .kernel = layer.kernel,
                             .stride = layer.stride,
                             .padding = layer.padding,
                             .groups = layer.groups});
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Linear& layer) {
    const NodeId relu = Next<Relu>(node);
    return LowerConvolution(
        node, relu != kNone ? relu : node, layer,
        {.in_channels = Input(node)->elements(), .out_channels = layer.out_features});
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const BatchNorm2d& layer) {
    BatchNormParts parts{.layer = layer};
    NodeId last = TakeActivation(node, &parts.activation);
    if (parts.activation == Activation::kRelu) {
      const NodeId pool = Next<MaxPool2d>(last);
      parts.pool = pool != kNone && Is2x2(std::get<MaxPool2d>(graph_.nodes[pool].layer));
      if (parts.pool) last = pool;
    }
    const size_t parameters = program_.parameters.elements();
    const int64_t channels = Input(node)->shape.channels;
    const std::string& name = graph_.nodes[node].name;
    const auto add = [&](FlatLayout& flat, const char* what, double value) {
      return flat.Add(absl::StrCat(name, ".", what), {channels}, Initial::Constant(value),
                      PlainLayout(channels));
    };
    parts.weight_offset = add(program_.parameters, "weight", layer.zero_weight ? 0 : 1);
    parts.bias_offset = add(program_.parameters, "bias", 0);
    parts.running_mean_offset = add(program_.buffers, "running_mean", 0);
    parts.running_variance_offset = add(program_.buffers, "running_var", 1);
    Tensor* const output = AddOutput(last, true);
    AddOperation(last,
                 MakeBatchNormOperation(Span(node, last), Input(node), output, parts, kernels_),
                 parameters);
    return last;
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Relu&) {
    const NodeId pool = Next<MaxPool2d>(node);
    if (pool != kNone) {
      return LowerMaxPool(node, pool, std::get<MaxPool2d>(graph_.nodes[pool].layer));
    }
    return LowerActivation(node, Activation::kRelu);
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Relu6&) {
    return LowerActivation(node, Activation::kRelu6);
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const MaxPool2d& layer) {
    return LowerMaxPool(node, node, layer);
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const AvgPool2d& layer) {
    return LowerAveragePool(node, layer.kernel, layer.kernel, layer.stride);
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const AdaptiveAvgPool2d&) {
    const ImageShape& in = Input(node)->shape;
    return LowerAveragePool(node, in.height, in.width, 1);
  }

  // NHWC already lies flat: the same tensor, seen as one line of channels by Linear, which asks for
  // its elements.
  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Flatten&) {
    tensor_of_[node] = Input(node);
    return node;
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Dropout& layer) {
    Tensor* const output = AddOutput(node, Input(node)->needs_gradient);
    AddOperation(node,
                 MakeDropoutOperation(Span(node, node), Input(node), output, layer.probability,
                                      static_cast<uint32_t>(node), kernels_));
    return node;
  }

  // Its Add computes it.
  absl::StatusOr<NodeId> LowerLayer(NodeId node, const StochasticDepth&) {
    tensor_of_[node] = Input(node);
    return node;
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Add&) {
    Tensor* const branch = Input(node, 0);
    Tensor* const shortcut = Input(node, 1);
    if (branch == shortcut) return absl::InvalidArgumentError("adds a value to itself");
    Activation activation = Activation::kNone;
    const NodeId last = TakeActivation(node, &activation);
    Tensor* const output = AddOutput(last, branch->needs_gradient || shortcut->needs_gradient);
    const auto block = block_of_.find(graph_.nodes[node].inputs[0]);
    AddOperation(last,
                 MakeAddOperation(Span(node, last), branch, shortcut, output, activation,
                                  block != block_of_.end() ? block->second : nullptr, kernels_));
    return last;
  }

  template <typename L>
  absl::StatusOr<NodeId> LowerConvolution(NodeId node, NodeId last, const L& layer,
                                          const ConvolutionShape& shape) {
    constexpr bool kLinear = std::is_same_v<L, Linear>;
    Tensor* const input = Input(node);
    const kernels::ConvolutionOptions convolution_options = {
        .max_rows = options_.max_batch,
        .bias = layer.bias,
        .training = options_.training,
        .data_gradient = input->needs_gradient,
        .threads = static_cast<int>(options_.threads)};
    ConvolutionParts parts{.shape = shape, .linear = kLinear, .relu = last != node};
    if (options_.reference) {
      parts.convolution = kernels::reference::MakeConvolution(shape, convolution_options);
    } else {
      ASSIGN_OR_RETURN(parts.convolution,
                       kernels::cpu::MakeConvolution(shape, convolution_options));
    }
    const std::string& name = graph_.nodes[node].name;
    std::vector<int64_t> weight_shape = {shape.out_channels, shape.in_channels / shape.groups};
    TensorLayout layout = ConvolutionLayout(parts.convolution.get());
    if (kLinear) {
      const NodeId from = graph_.nodes[node].inputs[0];
      layout = OverFlattened(shapes_[from].flattened_from, shape.out_channels, std::move(layout));
    } else {
      weight_shape.insert(weight_shape.end(), {shape.kernel, shape.kernel});
    }
    const Initials initials = InitialsOf(layer, shape);
    const size_t parameters = program_.parameters.elements();
    parts.weight_offset = program_.parameters.Add(name + ".weight", std::move(weight_shape),
                                                  initials.weight, std::move(layout));
    if (layer.bias) {
      parts.bias_offset = program_.parameters.Add(name + ".bias", {shape.out_channels},
                                                  initials.bias, PlainLayout(shape.out_channels));
    }
    Tensor* const output = AddOutput(last, true);
    AddOperation(
        last, MakeConvolutionOperation(Span(node, last), input, output, std::move(parts), kernels_),
        parameters);
    return last;
  }

  NodeId LowerActivation(NodeId node, Activation activation) {
    Tensor* const output = AddOutput(node, Input(node)->needs_gradient);
    AddOperation(
        node, MakeActivationOperation(Span(node, node), Input(node), output, activation, kernels_));
    return node;
  }

  // The pool itself, or the ReLU before it.
  NodeId LowerMaxPool(NodeId node, NodeId last, const MaxPool2d& layer) {
    Tensor* const output = AddOutput(last, Input(node)->needs_gradient);
    AddOperation(last, MakeMaxPoolOperation(Span(node, last), Input(node), output, layer,
                                            last != node, kernels_));
    return last;
  }

  NodeId LowerAveragePool(NodeId node, int64_t kernel_height, int64_t kernel_width,
                          int64_t stride) {
    Tensor* const output = AddOutput(node, Input(node)->needs_gradient);
    AddOperation(node, MakeAveragePoolOperation(Span(node, node), Input(node), output,
                                                kernel_height, kernel_width, stride, kernels_));
    return node;
  }

  // The node that takes this one's output, if nobody else does and it is a T.
  template <typename T>
  NodeId Next(NodeId node) const {
    if (consumers_[node].size() != 1) return kNone;
    const NodeId next = consumers_[node][0];
    return std::holds_alternative<T>(graph_.nodes[next].layer) ? next : kNone;
  }

  // The activation after the node that fuses with it: its node, or the given one without any.
  NodeId TakeActivation(NodeId node, Activation* activation) const {
    if (const NodeId relu = Next<Relu>(node); relu != kNone) {
      *activation = Activation::kRelu;
      return relu;
    }
    if (const NodeId relu6 = Next<Relu6>(node); relu6 != kNone) {
      *activation = Activation::kRelu6;
      return relu6;
    }
    return node;
  }

  // A branch under stochastic depth is all that leads nowhere but into it.
  void MakeBlocks() {
    blocks_of_.resize(graph_.nodes.size());
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const auto* const layer = std::get_if<StochasticDepth>(&graph_.nodes[i].layer);
      if (layer == nullptr || layer->probability == 0) continue;
      program_.blocks.push_back(std::make_unique<StochasticBlock>(
          StochasticBlock{.node = static_cast<uint32_t>(i), .probability = layer->probability}));
      const StochasticBlock* const block = program_.blocks.back().get();
      block_of_[static_cast<NodeId>(i)] = block;
      std::vector<bool> inside(graph_.nodes.size(), false);
      inside[i] = true;
      for (size_t node = i; node-- > 0;) {
        bool only = !consumers_[node].empty();
        for (const NodeId consumer : consumers_[node]) only = only && inside[consumer];
        inside[node] = only;
        if (only) blocks_of_[node].push_back(block);
      }
    }
  }

  Tensor* Input(NodeId node, size_t index = 0) const {
    const NodeId from = graph_.nodes[node].inputs[index];
    return from == kInput ? program_.tensors[0].get() : tensor_of_[from];
  }

  Tensor* AddTensor(const ImageShape& shape, bool needs_gradient) {
    program_.tensors.push_back(std::make_unique<Tensor>());
    Tensor* const tensor = program_.tensors.back().get();
    tensor->shape = shape;
    tensor->needs_gradient = needs_gradient;
    return tensor;
  }

  Tensor* AddOutput(NodeId node, bool needs_gradient) {
    tensor_of_[node] = AddTensor(shapes_[node].image, needs_gradient);
    return tensor_of_[node];
  }

  // `last` is the last node of the operation. Its parameters are those added since the flat array
  // had `parameters_begin` elements.
  void AddOperation(NodeId last, std::unique_ptr<Operation> operation, size_t parameters_begin) {
    operation->set_parameters(parameters_begin, program_.parameters.elements());
    for (const StochasticBlock* block : blocks_of_[last]) operation->AddBlock(block);
    program_.operations.push_back(std::move(operation));
  }
  void AddOperation(NodeId last, std::unique_ptr<Operation> operation) {
    AddOperation(last, std::move(operation), program_.parameters.elements());
  }

  // "conv1" or "bn1..relu1".
  std::string Span(NodeId first, NodeId last) const {
    if (first == last) return graph_.nodes[first].name;
    return absl::StrCat(graph_.nodes[first].name, "..", graph_.nodes[last].name);
  }

  const Graph& graph_;
  const CompileOptions& options_;
  const std::vector<ValueShape> shapes_;
  const KernelTable& kernels_;
  const std::vector<std::vector<NodeId>> consumers_;
  std::vector<Tensor*> tensor_of_;  // by node; of fused ones only the last has one
  std::map<NodeId, const StochasticBlock*> block_of_;           // by StochasticDepth node
  std::vector<std::vector<const StochasticBlock*>> blocks_of_;  // by node: those it lies in
  Program program_;
};

}  // namespace

absl::StatusOr<Program> Lower(const Graph& graph, const CompileOptions& options) {
  ASSIGN_OR_RETURN(std::vector<ValueShape> shapes, InferShapes(graph));
  for (size_t i = 0; i < shapes.size(); ++i) {
    if (shapes[i].elements() > kMaxActivationElements / options.max_batch) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "layer ", graph.nodes[i].name, ": a batch of ", options.max_batch, " is too large"));
    }
  }
  return Lowering(graph, options, std::move(shapes)).Run();
}

}  // namespace muster::nn
