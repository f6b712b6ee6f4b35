#include "trainer/graph/lowering.h"

#include <algorithm>
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
#include "trainer/graph/fusion.h"
#include "trainer/graph/layer_parameters.h"
#include "trainer/graph/operations/activation.h"
#include "trainer/graph/operations/batch_norm.h"
#include "trainer/graph/operations/convolution.h"
#include "trainer/graph/operations/pooling.h"
#include "trainer/graph/operations/residual.h"
#include "trainer/graph/program_builder.h"
#include "trainer/graph/shapes.h"

namespace muster::nn {
namespace {

using kernels::Activation;
using kernels::ConvolutionShape;
using kernels::DataType;
using kernels::KernelTable;

// Larger than any machine's memory, but small enough that sums of sizes in bytes do not overflow.
constexpr int64_t kMaxActivationElements = int64_t{1} << 36;

class Lowering {
 public:
  Lowering(const Graph& graph, const CompileOptions& options, std::vector<ValueShape> shapes)
      : graph_(graph),
        options_(options),
        shapes_(std::move(shapes)),
        kernels_(options.device->kernels()),
        fusions_(graph),
        builder_(graph, shapes_, fusions_.consumers(), options.precision.activations, kernels_) {}

  absl::StatusOr<Program> Run() && {
    std::vector<bool> done(graph_.nodes.size(), false);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (done[i]) continue;
      const NodeId node = static_cast<NodeId>(i);
      const absl::StatusOr<NodeId> last = std::visit(
          [&](const auto& layer) { return LowerLayer(node, layer); }, graph_.nodes[i].layer);
      if (!last.ok()) {
        return Annotate(last.status(), absl::StrCat("layer ", graph_.nodes[i].name));
      }
      for (NodeId fused = node; fused != *last; fused = fusions_.consumers()[fused][0]) {
        done[fused] = true;
      }
      done[*last] = true;
    }
    Program program = std::move(builder_).Finish();
    if (options_.training && !Trains(program)) {
      return absl::InvalidArgumentError("the graph has no parameters to train");
    }
    return program;
  }

 private:
  static constexpr NodeId kNone = Fusions::kNone;

  static bool Trains(const Program& program) {
    if (program.logits != nullptr) return program.logits->needs_gradient;
    return std::any_of(program.outputs.begin(), program.outputs.end(),
                       [](const Boundary& output) { return output.tensor->needs_gradient; });
  }

  // Each overload lowers the node and the following nodes that fuse with it, and returns the last
  // node lowered.

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Conv2d& layer) {
    const ImageShape& in = builder_.Input(node)->shape;
    ConvolutionParts parts{.shape = {.height = in.height,
                                     .width = in.width,
                                     .in_channels = in.channels,
                                     .out_channels = layer.out_channels,
                                     .kernel = layer.kernel,
                                     .stride = layer.stride,
                                     .padding = layer.padding,
                                     .groups = layer.groups}};
    const NodeId folded = fusions_.FoldedBatchNorm(node);
    if (!options_.training && folded != kNone) {
      // The batch norm's operation computes the convolution.
      const NodeId last = fusions_.AfterBatchNorm(folded).last;
      RETURN_IF_ERROR(
          MakeConvolution(builder_.Input(node), builder_.TypeOf(last), layer.bias, parts));
      folded_range_[node] =
          AddParameters(graph_.nodes[node].name, layer, parts, builder_.parameters());
      Fold(node, builder_.Input(node), std::make_shared<const ConvolutionParts>(std::move(parts)));
      return node;
    }
    const Fusions::Activated fused = fusions_.AfterConvolution(node);
    parts.activation = fused.activation;
    parts.compact_data_gradient = HasCompactGradient(node, parts.shape);
    Tensor* input = builder_.Input(node);
    const DataType type = builder_.TypeOf(fused.last);
    RETURN_IF_ERROR(MakeConvolution(input, type, layer.bias, parts));
    if (options_.training && !input->needs_gradient && parts.convolution->casts_x()) {
      // The batch: cast once for forward and backward.
      input = builder_.As(parts.compute_type, input, node);
      RETURN_IF_ERROR(MakeConvolution(input, type, layer.bias, parts));
    }
    const Operation::Range range =
        AddParameters(graph_.nodes[node].name, layer, parts, builder_.parameters());
    const auto shared = std::make_shared<const ConvolutionParts>(std::move(parts));
    AddConvolution(node, fused.last, input, shared, range);
    if (folded != kNone) Fold(node, input, shared);
    return fused.last;
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Linear& layer) {
    const Fusions::Activated fused = fusions_.AfterConvolution(node);
    ConvolutionParts parts{.shape = {.in_channels = builder_.Input(node)->elements(),
                                     .out_channels = layer.out_features},
                           .linear = true,
                           .activation = fused.activation};
    RETURN_IF_ERROR(
        MakeConvolution(builder_.Input(node), builder_.TypeOf(fused.last), layer.bias, parts));
    const NodeId from = graph_.nodes[node].inputs[0];
    const ValueShape& shape =
        IsEarlierValue(from) ? graph_.inputs[EarlierValueIndex(from)].shape : shapes_[from];
    const Operation::Range range = AddParameters(
        graph_.nodes[node].name, layer, shape.flattened_from, parts, builder_.parameters());
    AddConvolution(node, fused.last, builder_.Input(node),
                   std::make_shared<const ConvolutionParts>(std::move(parts)), range);
    return fused.last;
  }

  // The parameters are stored in the order of the graph's nodes, even if a later sum computes the
  // layer.
  absl::StatusOr<NodeId> LowerLayer(NodeId node, const BatchNorm2d& layer) {
    BatchNorm& norm = batch_norms_[node];
    norm.parts.layer = layer;
    norm.range = AddParameters(graph_.nodes[node].name, shapes_[node].image.channels, norm.parts,
                               builder_.parameters(), builder_.buffers());
    const Fusions::Normalized after = AfterBatchNorm(node);
    if (after.add != kNone) return node;
    LowerBatchNorm(node, after);
    return after.last;
  }

  // With the max pooling that the device's kernels fuse. In evaluation the batch norm is folded
  // into a convolution instead.
  Fusions::Normalized AfterBatchNorm(NodeId node) const {
    const Fusions::Normalized pooled = fusions_.AfterBatchNorm(node, Fusions::Pools::kAll);
    if (pooled.pool != kNone && options_.training) {
      const auto& pool = std::get<MaxPool2d>(graph_.nodes[pooled.pool].layer);
      const ImageShape& in = shapes_[node].image;
      const size_t bytes = kernels_.batch_norm_pool_bytes({.samples = options_.max_batch,
                                                           .height = in.height,
                                                           .width = in.width,
                                                           .channels = in.channels,
                                                           .activation = pooled.activation,
                                                           .pool = true,
                                                           .type = builder_.TypeOf(pooled.last),
                                                           .pool_kernel = pool.kernel,
                                                           .pool_stride = pool.stride,
                                                           .pool_padding = pool.padding});
      if (bytes > 0) return pooled;
    }
    return fusions_.AfterBatchNorm(node);
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Relu&) {
    const NodeId pool = fusions_.PoolAfter(node);
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
    const ImageShape& in = builder_.Input(node)->shape;
    return LowerAveragePool(node, in.height, in.width, 1);
  }

  // NHWC data are already flat: the output is the same tensor, which Linear reads as one vector of
  // its elements.
  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Flatten&) {
    builder_.PassOn(node);
    return node;
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Dropout& layer) {
    const Ends ends = SingleTyped(node, node);
    builder_.AddOperation(
        node, node,
        MakeDropoutOperation(builder_.Span(node, node), ends.input, ends.output, layer.probability,
                             static_cast<uint32_t>(graph_.first_node + node), *options_.device));
    return node;
  }

  // The operation of its Add computes it.
  absl::StatusOr<NodeId> LowerLayer(NodeId node, const StochasticDepth&) {
    builder_.PassOn(node);
    return node;
  }

  absl::StatusOr<NodeId> LowerLayer(NodeId node, const Add&) {
    const StochasticBlock* const block = builder_.BlockOf(graph_.nodes[node].inputs[0]);
    const Fusions::Activated fused = fusions_.AfterAdd(node);
    const DataType type = builder_.TypeOf(fused.last);
    if (const NodeId batch_norm = fusions_.BatchNormBefore(node); batch_norm != kNone) {
      BatchNormParts& parts = batch_norms_.at(batch_norm).parts;
      parts.addend = builder_.As(type, builder_.Input(node, 1), node);
      parts.block = block;
      const NodeId shortcut = options_.training ? fusions_.ShortcutBatchNorm(node) : kNone;
      if (shortcut != kNone &&
          batch_norms_.at(shortcut).parts.applied_by == BatchNormParts::AppliedBy::kSum) {
        parts.shortcut = builder_.ProducerOf(parts.addend);
      }
      LowerBatchNorm(batch_norm, fusions_.AfterBatchNorm(batch_norm));
      return fused.last;
    }
    if (builder_.Input(node, 0) == builder_.Input(node, 1)) {
      return absl::InvalidArgumentError("the two inputs of an Add must differ");
    }
    Tensor* const branch = builder_.As(type, builder_.Input(node, 0), node);
    Tensor* const shortcut = builder_.As(type, builder_.Input(node, 1), node);
    Tensor* const output =
        builder_.AddOutput(fused.last, branch->needs_gradient || shortcut->needs_gradient);
    builder_.AddOperation(node, fused.last,
                          MakeAddOperation(builder_.Span(node, fused.last), branch, shortcut,
                                           output, fused.activation, block, kernels_));
    return fused.last;
  }

  // Whether the gradient of a convolution's input contains only the pixels that it reads, because
  // the operation that computes the input adds them to the gradient of another convolution.
  bool HasCompactGradient(NodeId node, const ConvolutionShape& shape) const {
    if (!options_.training || !fusions_.SkipsPixels(node)) return false;
    const Tensor* const input = builder_.Input(node);
    const Operation* const producer = builder_.ProducerOf(input);
    // Kernels number the pixels in 32 bits. A layer with one output pixel is a linear one.
    const int64_t pixels = shape.height * shape.width * options_.max_batch;
    return producer != nullptr && producer->TakesStridedGradientAddend() && input->needs_gradient &&
           pixels < int64_t{1} << 31 && shape.out_height() * shape.out_width() > 1;
  }

  // Creates the kernels of a convolution with parts.shape.
  absl::Status MakeConvolution(const Tensor* input, DataType output_type, bool bias,
                               ConvolutionParts& parts) const {
    parts.compute_type = options_.precision.compute;
    const kernels::ConvolutionOptions options = {
        .max_samples = options_.max_batch,
        .bias = bias,
        .training = options_.training,
        .data_gradient = input->needs_gradient,
        .compact_data_gradient = parts.compact_data_gradient,
        .threads = static_cast<int>(options_.threads),
        .x_type = input->type,
        .y_type = output_type,
        .compute_type = parts.compute_type};
    ASSIGN_OR_RETURN(parts.convolution, options_.device->MakeConvolution(parts.shape, options));
    return absl::OkStatus();
  }

  void AddConvolution(NodeId node, NodeId last, Tensor* input,
                      std::shared_ptr<const ConvolutionParts> parts,
                      const Operation::Range& range) {
    Tensor* const output = builder_.AddOutput(last, true);
    builder_.AddOperation(node, last,
                          MakeConvolutionOperation(builder_.Span(node, last), input, output,
                                                   std::move(parts), kernels_),
                          {range});
  }

  void Fold(NodeId node, Tensor* input, std::shared_ptr<const ConvolutionParts> parts) {
    folded_[node] = {.parts = std::move(parts), .input = input, .name = graph_.nodes[node].name};
  }

  // Called at the point of the program where the addend, if any, is available.
  void LowerBatchNorm(NodeId node, const Fusions::Normalized& after) {
    BatchNorm& norm = batch_norms_.at(node);
    norm.parts.activation = after.activation;
    if (after.pool != kNone) norm.parts.pool = std::get<MaxPool2d>(graph_.nodes[after.pool].layer);
    const NodeId sum = options_.training ? fusions_.AppliedBySum(node) : kNone;
    if (sum != kNone && builder_.TypeOf(node) == builder_.TypeOf(fusions_.AfterAdd(sum).last)) {
      norm.parts.applied_by = BatchNormParts::AppliedBy::kSum;
    }
    const NodeId convolution = after.pool == kNone ? fusions_.FoldsInto(node) : kNone;
    FoldedConvolution folded;
    if (convolution != kNone) folded = folded_.at(convolution);
    if (!options_.training && convolution != kNone) {
      builder_.AddOperation(
          convolution, after.last,
          MakeFoldedConvolutionOperation(builder_.Span(convolution, after.last),
                                         builder_.AddOutput(after.last, true), norm.parts,
                                         std::move(folded), *options_.device),
          {folded_range_.at(convolution), norm.range});
      return;
    }
    Tensor* const input = builder_.As(builder_.TypeOf(after.last), builder_.Input(node), node);
    // The convolution's kernels write only one type.
    if (input != builder_.Input(node)) folded = {};
    Operation* const computed = folded.parts != nullptr ? builder_.ProducerOf(input) : nullptr;
    const Operation* const operation = builder_.AddOperation(
        node, after.last,
        MakeBatchNormOperation(builder_.Span(node, after.last), input,
                               builder_.AddOutput(after.last, true), norm.parts, std::move(folded),
                               *options_.device),
        {norm.range});
    if (computed != nullptr) computed->set_evaluated_by(operation);
  }

  NodeId LowerActivation(NodeId node, Activation activation) {
    const Ends ends = SingleTyped(node, node);
    builder_.AddOperation(node, node,
                          MakeActivationOperation(builder_.Span(node, node), ends.input,
                                                  ends.output, activation, kernels_));
    return node;
  }

  // `node` is the pool itself or the ReLU before it.
  NodeId LowerMaxPool(NodeId node, NodeId last, const MaxPool2d& layer) {
    const Ends ends = SingleTyped(node, last);
    builder_.AddOperation(node, last,
                          MakeMaxPoolOperation(builder_.Span(node, last), ends.input, ends.output,
                                               layer, last != node, kernels_));
    return last;
  }

  NodeId LowerAveragePool(NodeId node, int64_t kernel_height, int64_t kernel_width,
                          int64_t stride) {
    const Ends ends = SingleTyped(node, node);
    builder_.AddOperation(
        node, node,
        MakeAveragePoolOperation(builder_.Span(node, node), ends.input, ends.output, kernel_height,
                                 kernel_width, stride, kernels_));
    return node;
  }

  // Input and output of an operation without parameters from `node` to `last`, whose kernels use
  // one type for both.
  struct Ends {
    Tensor* input;
    Tensor* output;
  };
  Ends SingleTyped(NodeId node, NodeId last) {
    Tensor* const input = builder_.As(builder_.TypeOf(last), builder_.Input(node), node);
    return {.input = input, .output = builder_.AddOutput(last, input->needs_gradient)};
  }

  const Graph& graph_;
  const CompileOptions& options_;
  const std::vector<ValueShape> shapes_;
  const KernelTable& kernels_;
  const Fusions fusions_;
  ProgramBuilder builder_;
  struct BatchNorm {
    BatchNormParts parts;
    Operation::Range range;
  };
  std::map<NodeId, BatchNorm> batch_norms_;
  // By convolution: what evaluation folds into its batch norm's operation, and its parameters if
  // the plan is for evaluation only.
  std::map<NodeId, FoldedConvolution> folded_;
  std::map<NodeId, Operation::Range> folded_range_;
};

}  // namespace

absl::StatusOr<Program> Lower(const Graph& graph, const CompileOptions& options) {
  ASSIGN_OR_RETURN(std::vector<ValueShape> shapes, InferShapes(graph));
  const auto check = [&](const std::string& layer, const ValueShape& shape) {
    if (shape.elements() <= kMaxActivationElements / options.max_batch) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("layer ", layer, ": batch of ", options.max_batch, " is too large"));
  };
  for (const EarlierValue& value : graph.inputs) RETURN_IF_ERROR(check(value.name, value.shape));
  for (size_t i = 0; i < shapes.size(); ++i) {
    RETURN_IF_ERROR(check(graph.nodes[i].name, shapes[i]));
  }
  return Lowering(graph, options, std::move(shapes)).Run();
}

}  // namespace muster::nn
