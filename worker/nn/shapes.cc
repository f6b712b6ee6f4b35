#include "worker/nn/shapes.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::nn {
namespace {

// No dimension beyond this: products of a few of them stay far from overflow.
constexpr int64_t kMaxDimension = int64_t{1} << 20;
constexpr int64_t kMaxElements = int64_t{1} << 32;  // of one row

bool InRange(int64_t value) { return value >= 1 && value <= kMaxDimension; }

absl::StatusOr<ValueShape> ShapeAfter(const Conv2d& conv, const ValueShape& in) {
  if (in.flat) return absl::InvalidArgumentError("a convolution cannot follow Flatten");
  if (!InRange(conv.out_channels) || !InRange(conv.kernel) || !InRange(conv.stride) ||
      conv.padding < 0 || conv.padding >= conv.kernel) {
    return absl::InvalidArgumentError("a convolution's option is out of range");
  }
  ValueShape out = in;
  out.image.channels = conv.out_channels;
  for (int64_t* side : {&out.image.height, &out.image.width}) {
    if (*side + 2 * conv.padding < conv.kernel) {
      return absl::InvalidArgumentError(
          absl::StrCat("a kernel of ", conv.kernel, " is larger than its input of ", *side));
    }
    *side = (*side + 2 * conv.padding - conv.kernel) / conv.stride + 1;
  }
  return out;
}

absl::StatusOr<ValueShape> ShapeAfter(const BatchNorm2d& norm, const ValueShape& in) {
  if (in.flat) return absl::InvalidArgumentError("BatchNorm2d cannot follow Flatten");
  if (!(norm.epsilon > 0) || !(norm.momentum >= 0 && norm.momentum <= 1)) {
    return absl::InvalidArgumentError("an option of BatchNorm2d is out of range");
  }
  return in;
}

absl::StatusOr<ValueShape> ShapeAfter(const Relu&, const ValueShape& in) { return in; }

absl::StatusOr<ValueShape> ShapeAfter(const MaxPool2d&, const ValueShape& in) {
  if (in.image.height < 2 || in.image.width < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing to pool in ", in.image.height, "x", in.image.width));
  }
  ValueShape out = in;
  out.image.height /= 2;
  out.image.width /= 2;
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
  if (!InRange(linear.out_features)) {
    return absl::InvalidArgumentError("a linear layer's width is out of range");
  }
  ValueShape out;
  out.image = out.flattened_from = {1, 1, linear.out_features};
  out.flat = true;
  return out;
}

absl::StatusOr<ValueShape> ShapeAfter(const Dropout& dropout, const ValueShape& in) {
  if (!(dropout.probability >= 0 && dropout.probability < 1)) {
    return absl::InvalidArgumentError("a dropout's probability must be at least 0 and below 1");
  }
  return in;
}

}  // namespace

absl::StatusOr<std::vector<ValueShape>> InferShapes(const Graph& graph) {
  if (graph.nodes.empty()) return absl::InvalidArgumentError("a graph without layers");
  if (!InRange(graph.input.height) || !InRange(graph.input.width) ||
      !InRange(graph.input.channels)) {
    return absl::InvalidArgumentError("an input of no or enormous size");
  }
  ValueShape input;
  input.image = graph.input;
  std::vector<ValueShape> shapes;
  std::vector<bool> used(graph.nodes.size() + 1, false);  // by node + 1
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    // Every layer so far takes one input.
    if (node.inputs.size() != 1 || node.inputs[0] < kInput ||
        node.inputs[0] >= static_cast<NodeId>(i)) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", node.name, ": needs one input, from before it"));
    }
    const NodeId from = node.inputs[0];
    if (used[from + 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", node.name, ": its input already goes to another layer"));
    }
    used[from + 1] = true;
    const ValueShape& in = from == kInput ? input : shapes[from];
    absl::StatusOr<ValueShape> out =
        std::visit([&](const auto& layer) { return ShapeAfter(layer, in); }, node.layer);
    if (!out.ok()) return Annotate(out.status(), absl::StrCat("layer ", node.name));
    if (out->elements() > kMaxElements) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", node.name, ": too large"));
    }
    shapes.push_back(*out);
  }
  for (size_t i = 0; i + 1 < graph.nodes.size(); ++i) {
    if (!used[i + 1]) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer ", graph.nodes[i].name, ": its output goes nowhere"));
    }
  }
  if (!shapes.back().flat) return absl::InvalidArgumentError("the last layer must be flat: logits");
  return shapes;
}

}  // namespace muster::nn
