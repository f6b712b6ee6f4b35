#include "trainer/graph/shapes.h"

#include <cstddef>
#include <string>
#include <unordered_set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::nn {
namespace {

// Limit of each dimension, such that products of a few of them cannot overflow.
constexpr int64_t kMaxDimension = int64_t{1} << 20;
constexpr int64_t kMaxElements = int64_t{1} << 32;  // per sample
// The index of the maximum within a pooling window must fit into a byte.
constexpr int64_t kMaxPoolKernel = 15;

bool InRange(int64_t value) { return value >= 1 && value <= kMaxDimension; }

std::string Text(const ValueShape& shape) {
  if (shape.flat) return absl::StrCat(shape.elements());
  return absl::StrCat(shape.image.height, "x", shape.image.width, "x", shape.image.channels);
}

absl::Status NeedsImage(const ValueShape& in) {
  if (!in.flat) return absl::OkStatus();
  return absl::InvalidArgumentError("needs an image as input and cannot follow Flatten");
}

// The shape after sliding windows over an image.
absl::StatusOr<ValueShape> SlideWindow(ValueShape shape, int64_t kernel, int64_t stride,
                                       int64_t padding) {
  for (int64_t* side : {&shape.image.height, &shape.image.width}) {
    if (*side + 2 * padding < kernel) {
      return absl::InvalidArgumentError(
          absl::StrCat("kernel size ", kernel, " is larger than the input size ", *side));
    }
    *side = (*side + 2 * padding - kernel) / stride + 1;
  }
  return shape;
}

absl::StatusOr<ValueShape> ShapeAfter(const Conv2d& conv, const ValueShape& in) {
  RETURN_IF_ERROR(NeedsImage(in));
  if (!InRange(conv.out_channels) || !InRange(conv.kernel) || !InRange(conv.stride) ||
      conv.padding < 0 || conv.padding >= conv.kernel || !(conv.standard_deviation >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Conv2d has ", conv.out_channels, " output channels, kernel ", conv.kernel,
                     ", stride ", conv.stride, ", padding ", conv.padding, ", standard deviation ",
                     conv.standard_deviation, ": channels, kernel and stride must be 1 to ",
                     kMaxDimension, ", padding 0 to kernel - 1, standard deviation at least 0"));
  }
  if (conv.groups < 1 || in.image.channels % conv.groups != 0 ||
      conv.out_channels % conv.groups != 0) {
    return absl::InvalidArgumentError(absl::StrCat(in.image.channels, " input and ",
                                                   conv.out_channels, " output channels are not ",
                                                   "divisible by ", conv.groups, " groups"));
  }
  ValueShape out = in;
  out.image.channels = conv.out_channels;
  return SlideWindow(out, conv.kernel, conv.stride, conv.padding);
}

absl::StatusOr<ValueShape> ShapeAfter(const BatchNorm2d& norm, const ValueShape& in) {
  RETURN_IF_ERROR(NeedsImage(in));
  if (!(norm.epsilon > 0) || !(norm.momentum >= 0 && norm.momentum <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("BatchNorm2d has epsilon ", norm.epsilon,
                                                   ", momentum ", norm.momentum,
                                                   ": epsilon must be above 0, momentum 0 to 1"));
  }
  return in;
}

absl::StatusOr<ValueShape> ShapeAfter(const Relu&, const ValueShape& in) { return in; }

absl::StatusOr<ValueShape> ShapeAfter(const Relu6&, const ValueShape& in) { return in; }

absl::StatusOr<ValueShape> ShapeAfter(const MaxPool2d& pool, const ValueShape& in) {
  RETURN_IF_ERROR(NeedsImage(in));
  if (pool.kernel < 1 || pool.kernel > kMaxPoolKernel || !InRange(pool.stride) ||
      pool.padding < 0 || pool.padding > pool.kernel / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("MaxPool2d has kernel ", pool.kernel, ", stride ", pool.stride, ", padding ",
                     pool.padding, ": kernel must be 1 to ", kMaxPoolKernel, ", stride 1 to ",
                     kMaxDimension, ", padding 0 to kernel / 2"));
  }
  return SlideWindow(in, pool.kernel, pool.stride, pool.padding);
}

absl::StatusOr<ValueShape> ShapeAfter(const AvgPool2d& pool, const ValueShape& in) {
  RETURN_IF_ERROR(NeedsImage(in));
  if (!InRange(pool.kernel) || !InRange(pool.stride)) {
    return absl::InvalidArgumentError(absl::StrCat("AvgPool2d has kernel ", pool.kernel,
                                                   ", stride ", pool.stride, ": both must be 1 to ",
                                                   kMaxDimension));
  }
  return SlideWindow(in, pool.kernel, pool.stride, 0);
}

absl::StatusOr<ValueShape> ShapeAfter(const AdaptiveAvgPool2d&, const ValueShape& in) {
  RETURN_IF_ERROR(NeedsImage(in));
  ValueShape out = in;
  out.image.height = out.image.width = 1;
  return out;
}

absl::StatusOr<ValueShape> ShapeAfter(const Flatten&, const ValueShape& in) {
  if (in.flat) return in;
  ValueShape out;
  out.image = {1, 1, in.elements()};
  out.flat = true;
  out.flattened_from = in.image;
  return out;
}

absl::StatusOr<ValueShape> ShapeAfter(const Linear& linear, const ValueShape& in) {
  if (!in.flat) return absl::InvalidArgumentError("Linear needs Flatten before it");
  if (!InRange(linear.out_features) || !(linear.standard_deviation >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Linear has ", linear.out_features, " output features, standard deviation ",
                     linear.standard_deviation, ": features must be 1 to ", kMaxDimension,
                     ", standard deviation at least 0"));
  }
  ValueShape out;
  out.image = out.flattened_from = {1, 1, linear.out_features};
  out.flat = true;
  return out;
}

absl::StatusOr<ValueShape> ShapeAfter(const Dropout& dropout, const ValueShape& in) {
  if (!(dropout.probability >= 0 && dropout.probability < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("dropout probability must be in [0, 1), not ", dropout.probability));
  }
  return in;
}

absl::StatusOr<ValueShape> ShapeAfter(const StochasticDepth& depth, const ValueShape& in) {
  if (!(depth.probability >= 0 && depth.probability < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("stochastic depth probability must be in [0, 1), not ", depth.probability));
  }
  return in;
}

// CheckSummands compares the two inputs.
absl::StatusOr<ValueShape> ShapeAfter(const Add&, const ValueShape& in) { return in; }

absl::Status CheckSummands(const ValueShape& branch, const ValueShape& shortcut) {
  const auto equal = [](const ImageShape& a, const ImageShape& b) {
    return a.height == b.height && a.width == b.width && a.channels == b.channels;
  };
  if (branch.flat != shortcut.flat || !equal(branch.image, shortcut.image)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot add ", Text(branch), " to ", Text(shortcut)));
  }
  if (branch.flat && !equal(branch.flattened_from, shortcut.flattened_from)) {
    return absl::InvalidArgumentError("cannot add flattened images of different shapes");
  }
  return absl::OkStatus();
}

absl::Status CheckInputs(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  const NodeId lowest = graph.inputs.empty() ? kInput : EarlierValueId(graph.inputs.size() - 1);
  const bool sum = std::holds_alternative<Add>(node.layer);
  const size_t expected = sum ? 2 : 1;
  bool valid = node.inputs.size() == expected;
  for (const NodeId input : node.inputs) {
    // Only the first stage of a model takes the batch.
    const bool missing = input == kInput && !graph.inputs.empty();
    valid = valid && input >= lowest && input < id && !missing;
  }
  if (!valid) {
    return absl::InvalidArgumentError(sum ? "needs two inputs from earlier layers"
                                          : "needs one input from an earlier layer");
  }
  return absl::OkStatus();
}

// Checks the constraints on the nodes around a node.
absl::Status CheckPlace(const Graph& graph, const std::vector<std::vector<NodeId>>& consumers,
                        NodeId id) {
  const Node& node = graph.nodes[id];
  const bool last = graph.outputs.empty() && id + 1 == static_cast<NodeId>(graph.nodes.size());
  if (!last && consumers[id].empty()) {
    return absl::InvalidArgumentError("its output is not used");
  }
  if (!std::holds_alternative<StochasticDepth>(node.layer)) return absl::OkStatus();
  if (node.inputs[0] <= kInput || consumers[node.inputs[0]].size() != 1) {
    return absl::InvalidArgumentError(
        "stochastic depth needs the end of a branch as input, whose "
        "output no other layer uses");
  }
  if (last || consumers[id].size() != 1 || consumers[id][0] == kLaterStages ||
      !std::holds_alternative<Add>(graph.nodes[consumers[id][0]].layer) ||
      graph.nodes[consumers[id][0]].inputs[0] != id) {
    return absl::InvalidArgumentError("stochastic depth must be the first input of an Add");
  }
  return absl::OkStatus();
}

absl::Status CheckOutputs(const Graph& graph) {
  for (const NodeId output : graph.outputs) {
    const bool exists = IsEarlierValue(output)
                            ? EarlierValueIndex(output) < graph.inputs.size()
                            : output != kInput && output < static_cast<NodeId>(graph.nodes.size());
    if (!exists) return absl::InvalidArgumentError("the stage has an output that does not exist");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::vector<NodeId>> Consumers(const Graph& graph) {
  std::vector<std::vector<NodeId>> consumers(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const NodeId input : graph.nodes[i].inputs) {
      if (input > kInput) consumers[input].push_back(static_cast<NodeId>(i));
    }
  }
  for (const NodeId output : graph.outputs) {
    if (output > kInput) consumers[output].push_back(kLaterStages);
  }
  return consumers;
}

std::vector<bool> LeadingOnlyInto(NodeId node, const std::vector<std::vector<NodeId>>& consumers) {
  std::vector<bool> leading(consumers.size(), false);
  leading[node] = true;
  for (NodeId before = node; before-- > 0;) {
    bool only = !consumers[before].empty();
    for (const NodeId consumer : consumers[before]) {
      only = only && consumer != kLaterStages && leading[consumer];
    }
    leading[before] = only;
  }
  return leading;
}

absl::StatusOr<std::vector<ValueShape>> InferShapes(const Graph& graph) {
  if (graph.nodes.empty()) return absl::InvalidArgumentError("the graph has no layers");
  if (!InRange(graph.input.height) || !InRange(graph.input.width) ||
      !InRange(graph.input.channels)) {
    return absl::InvalidArgumentError(absl::StrCat("input is ", graph.input.height, "x",
                                                   graph.input.width, "x", graph.input.channels,
                                                   ": each must be 1 to ", kMaxDimension));
  }
  ValueShape input;
  input.image = graph.input;
  std::vector<ValueShape> shapes;
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::string layer = absl::StrCat("layer ", node.name);
    if (!names.insert(node.name).second) {
      return absl::InvalidArgumentError(absl::StrCat(layer, ": name is not unique"));
    }
    RETURN_IF_ERROR(Annotate(CheckInputs(graph, static_cast<NodeId>(i)), layer));
    const auto in = [&](size_t index) -> const ValueShape& {
      const NodeId from = node.inputs[index];
      if (IsEarlierValue(from)) return graph.inputs[EarlierValueIndex(from)].shape;
      return from == kInput ? input : shapes[from];
    };
    if (std::holds_alternative<Add>(node.layer)) {
      RETURN_IF_ERROR(Annotate(CheckSummands(in(0), in(1)), layer));
    }
    absl::StatusOr<ValueShape> out =
        std::visit([&](const auto& of) { return ShapeAfter(of, in(0)); }, node.layer);
    if (!out.ok()) return Annotate(out.status(), layer);
    if (out->elements() > kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat(layer, ": output has ", out->elements(),
                                                     " elements, limit is ", kMaxElements));
    }
    shapes.push_back(*out);
  }
  RETURN_IF_ERROR(CheckOutputs(graph));
  const std::vector<std::vector<NodeId>> consumers = Consumers(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    RETURN_IF_ERROR(Annotate(CheckPlace(graph, consumers, static_cast<NodeId>(i)),
                             absl::StrCat("layer ", graph.nodes[i].name)));
  }
  if (graph.outputs.empty() && !shapes.back().flat) {
    return absl::InvalidArgumentError("the last layer must output flat logits");
  }
  return shapes;
}

}  // namespace muster::nn
