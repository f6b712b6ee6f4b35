#include "worker/nn/lowering.h"

#include <cmath>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "worker/nn/shapes.h"

namespace muster::nn {
namespace {

using kernels::Convolution;
using kernels::ConvolutionOptions;
using kernels::ConvolutionShape;
using kernels::KernelTable;

// Far beyond any machine's memory, and far below what overflows once sizes are added up in bytes.
constexpr int64_t kMaxActivationElements = int64_t{1} << 36;

// `convolution` outlives the layout: the plan owns both.
TensorLayout LayoutOf(const Convolution* convolution) {
  return {
      .name = convolution->weights_layout(),
      .elements = static_cast<size_t>(convolution->weights_elements()),
      .import_values = [convolution](const float* canonical,
                                     float* flat) { convolution->ImportWeights(canonical, flat); },
      .export_values = [convolution](
                           const float* flat,
                           float* canonical) { convolution->ExportWeights(flat, canonical); }};
}

// The layout of a linear layer that sees an image flattened: in files its columns are
// channel-first, as PyTorch flattens, here channel-last.
TensorLayout OverFlattened(const ImageShape& image, int64_t out_features, TensorLayout inner) {
  const int64_t pixels = image.height * image.width;
  if (pixels == 1) return inner;
  const int64_t columns = pixels * image.channels;
  // Calls visit(channel-first element, channel-last element) for the whole matrix.
  const auto for_each = [=](const auto& visit) {
    for (int64_t out = 0; out < out_features; ++out) {
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        for (int64_t c = 0; c < image.channels; ++c) {
          visit(out * columns + c * pixels + pixel, out * columns + pixel * image.channels + c);
        }
      }
    }
  };
  TensorLayout layout;
  layout.name = absl::StrCat(inner.name, " channel-last ", image.channels, "x", pixels);
  layout.elements = inner.elements;
  layout.import_values = [=, import = inner.import_values](const float* canonical, float* flat) {
    std::vector<float> channel_last(columns * out_features);
    for_each([&](int64_t first, int64_t last) { channel_last[last] = canonical[first]; });
    import(channel_last.data(), flat);
  };
  layout.export_values = [=, export_ = inner.export_values](const float* flat, float* canonical) {
    std::vector<float> channel_last(columns * out_features);
    export_(flat, channel_last.data());
    for_each([&](int64_t first, int64_t last) { canonical[first] = channel_last[last]; });
  };
  return layout;
}

TensorLayout Plain(int64_t elements) {
  return {.name = "plain", .elements = static_cast<size_t>(elements)};
}

class Lowering {
 public:
  Lowering(const Graph& graph, const CompileOptions& options, std::vector<ValueShape> shapes)
      : graph_(graph),
        options_(options),
        shapes_(std::move(shapes)),
        kernels_(options.reference ? kernels::ReferenceKernels() : kernels::CpuKernels()),
        consumer_(graph.nodes.size(), kNone),
        tensor_of_(graph.nodes.size()) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const NodeId from = graph.nodes[i].inputs[0];
      if (from != kInput) consumer_[from] = static_cast<NodeId>(i);
    }
  }

  absl::StatusOr<Program> Run() && {
    AddTensor(graph_.input, false);
    std::vector<bool> done(graph_.nodes.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (done[i]) continue;
      const NodeId node = static_cast<NodeId>(i);
      const absl::StatusOr<NodeId> last = std::visit(
          [&](const auto& layer) { return LowerLayer(node, layer); }, graph_.nodes[i].layer);
      if (!last.ok()) {
        return Annotate(last.status(), absl::StrCat("layer ", graph_.nodes[i].name));
      }
      for (NodeId fused = node; fused != *last; fused = consumer_[fused]) done[fused] = true;
      done[*last] = true;
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
    return LowerConvolution(node, last,
                            {.height = in.height,
                             .width = in.width,
                             .in_channels = in.channels,
                             .out_channels = layer.out_channels,
                             .kernel = layer.kernel,
                             .stride = layer.stride,
                             .padding = layer.padding});
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Linear& layer) {
    const NodeId relu = Next<Relu>(node);
    return LowerConvolution(
        node, relu != kNone ? relu : node,
        {.in_channels = Input(node)->elements(), .out_channels = layer.out_features});
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const BatchNorm2d& layer) {
    const NodeId relu = Next<Relu>(node);
    const NodeId pool = relu != kNone ? Next<MaxPool2d>(relu) : kNone;
    const NodeId last = pool != kNone ? pool : relu != kNone ? relu : node;
    const int64_t channels = Input(node)->shape.channels;
    const std::string& name = graph_.nodes[node].name;
    BatchNormParts parts{.layer = layer, .relu = relu != kNone, .pool = pool != kNone};
    parts.weight_offset = program_.parameters.Add(name + ".weight", {channels}, true,
                                                  {.constant = 1}, Plain(channels));
    parts.bias_offset =
        program_.parameters.Add(name + ".bias", {channels}, true, {}, Plain(channels));
    parts.running_mean_offset =
        program_.buffers.Add(name + ".running_mean", {channels}, false, {}, Plain(channels));
    parts.running_variance_offset = program_.buffers.Add(name + ".running_var", {channels}, false,
                                                         {.constant = 1}, Plain(channels));
    Tensor* const input = Input(node);
    Tensor* const output = AddOutput(last, true);
    AddOperation(MakeBatchNormOperation(Span(node, last), input, output, parts, kernels_));
    return last;
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Relu&) {
    const NodeId pool = Next<MaxPool2d>(node);
    if (pool != kNone) return LowerPool(node, pool, true);
    Tensor* const input = Input(node);
    Tensor* const output = AddOutput(node, NeedsGradient(node));
    AddOperation(MakeReluOperation(Span(node, node), input, output, kernels_));
    return node;
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const MaxPool2d&) {
    return LowerPool(node, node, false);
  }

  // NHWC already lies flat: the same tensor, seen as one line of channels by Linear, which asks for
  // its elements.
  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Flatten&) {
    tensor_of_[node] = InputIndex(node);
    return node;
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Dropout& layer) {
    Tensor* const input = Input(node);
    Tensor* const output = AddOutput(node, NeedsGradient(node));
    AddOperation(MakeDropoutOperation(Span(node, node), input, output, layer.probability,
                                      static_cast<uint32_t>(node), kernels_));
    return node;
  }

  absl::StatusOr<NodeId> LowerConvolution(NodeId node, NodeId last, const ConvolutionShape& shape) {
    const ConvolutionOptions convolution_options = {.max_rows = options_.max_batch,
                                                    .relu = last != node,
                                                    .training = options_.training,
                                                    .data_gradient = NeedsGradient(node),
                                                    .threads = static_cast<int>(options_.threads)};
    ConvolutionParts parts;
    parts.relu = last != node;
    if (options_.reference) {
      parts.convolution = kernels::reference::MakeConvolution(shape, convolution_options);
    } else {
      ASSIGN_OR_RETURN(parts.convolution,
                       kernels::cpu::MakeConvolution(shape, convolution_options));
    }
    const std::string& name = graph_.nodes[node].name;
    std::vector<int64_t> weight_shape = {shape.out_channels, shape.in_channels};
    TensorLayout layout = LayoutOf(parts.convolution.get());
    if (std::holds_alternative<Linear>(graph_.nodes[node].layer)) {
      const NodeId from = graph_.nodes[node].inputs[0];
      layout = OverFlattened(shapes_[from].flattened_from, shape.out_channels, std::move(layout));
    } else {
      weight_shape.insert(weight_shape.end(), {shape.kernel, shape.kernel});
    }
    // kaiming_uniform(a = sqrt(5)) of PyTorch comes to the bias's own bound.
    const Initial initial = {.bound = 1.0f / std::sqrt(static_cast<float>(shape.fan_in()))};
    parts.weight_offset = program_.parameters.Add(name + ".weight", std::move(weight_shape), true,
                                                  initial, std::move(layout));
    parts.bias_offset = program_.parameters.Add(name + ".bias", {shape.out_channels}, true, initial,
                                                Plain(shape.out_channels));
    Tensor* const input = Input(node);
    Tensor* const output = AddOutput(last, true);
    AddOperation(
        MakeConvolutionOperation(Span(node, last), input, output, std::move(parts), kernels_));
    return last;
  }

  absl::StatusOr<NodeId> LowerPool(NodeId node, NodeId last, bool relu) {
    Tensor* const input = Input(node);
    Tensor* const output = AddOutput(last, NeedsGradient(node));
    AddOperation(MakeMaxPoolOperation(Span(node, last), input, output, relu, kernels_));
    return last;
  }

  // The node that takes this one's output, if it is a T.
  template <typename T>
  NodeId Next(NodeId node) const {
    const NodeId next = consumer_[node];
    return next != kNone && std::holds_alternative<T>(graph_.nodes[next].layer) ? next : kNone;
  }

  size_t InputIndex(NodeId node) const {
    const NodeId from = graph_.nodes[node].inputs[0];
    return from == kInput ? 0 : tensor_of_[from];
  }
  Tensor* Input(NodeId node) const { return program_.tensors[InputIndex(node)].get(); }
  bool NeedsGradient(NodeId node) const { return program_.needs_gradient[InputIndex(node)]; }

  size_t AddTensor(const ImageShape& shape, bool needs_gradient) {
    program_.tensors.push_back(std::make_unique<Tensor>());
    program_.tensors.back()->shape = shape;
    program_.needs_gradient.push_back(needs_gradient);
    return program_.tensors.size() - 1;
  }

  Tensor* AddOutput(NodeId node, bool needs_gradient) {
    tensor_of_[node] = AddTensor(shapes_[node].image, needs_gradient);
    return program_.tensors.back().get();
  }

  void AddOperation(std::unique_ptr<Operation> operation) {
    program_.operations.push_back(std::move(operation));
  }

  // "1" or "1..3".
  std::string Span(NodeId first, NodeId last) const {
    if (first == last) return graph_.nodes[first].name;
    return absl::StrCat(graph_.nodes[first].name, "..", graph_.nodes[last].name);
  }

  const Graph& graph_;
  const CompileOptions& options_;
  const std::vector<ValueShape> shapes_;
  const KernelTable& kernels_;
  std::vector<NodeId> consumer_;
  std::vector<size_t> tensor_of_;  // by node; of fused ones only the last has one
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
