#include "trainer/models/custom_network.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status.h"
#include "trainer/models/chain.h"

namespace muster::nn {
namespace {

using Layers = google::protobuf::RepeatedPtrField<v1::LayerSpec>;

template <typename Number>
Number Or(Number value, Number fallback) {
  return value == 0 ? fallback : value;
}

Conv2d FromSpec(const v1::Conv2dSpec& spec) {
  return {.out_channels = spec.out_channels(),
          .kernel = spec.kernel(),
          .stride = Or(spec.stride(), 1u),
          .padding = spec.padding(),
          .groups = Or(spec.groups(), 1u),
          .bias = spec.has_bias() ? spec.bias() : true};
}

BatchNorm2d FromSpec(const v1::BatchNorm2dSpec& spec) {
  return {.epsilon = Or(spec.epsilon(), 1e-5), .momentum = Or(spec.momentum(), 0.1)};
}

MaxPool2d MaxPoolFromSpec(const v1::PoolSpec& spec) {
  return {.kernel = spec.kernel(),
          .stride = Or(spec.stride(), spec.kernel()),
          .padding = spec.padding()};
}

absl::StatusOr<Layer> AvgPoolFromSpec(const v1::PoolSpec& spec) {
  if (spec.padding() != 0) return absl::InvalidArgumentError("avg_pool2d does not support padding");
  return AvgPool2d{.kernel = spec.kernel(), .stride = Or(spec.stride(), spec.kernel())};
}

absl::StatusOr<Layer> FromSpec(const v1::LinearSpec& spec, int64_t classes) {
  const int64_t width = Or(int64_t{spec.out_features()}, classes);
  if (width == 0) return absl::InvalidArgumentError("linear needs out_features");
  return Linear{.out_features = width, .bias = spec.has_bias() ? spec.bias() : true};
}

// Converts any kind except residual.
absl::StatusOr<Layer> FromSpec(const v1::LayerSpec& spec, int64_t classes) {
  switch (spec.kind_case()) {
    case v1::LayerSpec::kConv2D:
      return FromSpec(spec.conv2d());
    case v1::LayerSpec::kBatchNorm2D:
      return FromSpec(spec.batch_norm2d());
    case v1::LayerSpec::kRelu:
      return Relu{};
    case v1::LayerSpec::kRelu6:
      return Relu6{};
    case v1::LayerSpec::kMaxPool2D:
      return MaxPoolFromSpec(spec.max_pool2d());
    case v1::LayerSpec::kAvgPool2D:
      return AvgPoolFromSpec(spec.avg_pool2d());
    case v1::LayerSpec::kAdaptiveAvgPool2D:
      return AdaptiveAvgPool2d{};
    case v1::LayerSpec::kFlatten:
      return Flatten{};
    case v1::LayerSpec::kLinear:
      return FromSpec(spec.linear(), classes);
    case v1::LayerSpec::kDropout:
      return Dropout{.probability = spec.dropout().probability()};
    case v1::LayerSpec::kResidual:
    case v1::LayerSpec::KIND_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("no layer type is set");
}

class CustomNetwork {
 public:
  CustomNetwork(const ImageShape& input, int64_t classes) : classes_(classes) {
    graph_.input = input;
  }

  // Adds the first `count` of `layers` after `from`. Returns the last node.
  absl::StatusOr<NodeId> AddLayers(const Layers& layers, int count, NodeId from,
                                   const std::string& prefix, int depth) {
    NodeId last = from;
    for (int place = 0; place < count; ++place) {
      if (++layers_added_ > kMaxCustomLayers) {
        return absl::InvalidArgumentError(
            absl::StrCat("the network has more than ", kMaxCustomLayers, " layers"));
      }
      const std::string name = absl::StrCat(prefix, place);
      if (layers[place].has_residual()) {
        ASSIGN_OR_RETURN(last, AddResidual(layers[place].residual(), last, name, depth));
      } else {
        absl::StatusOr<Layer> layer = FromSpec(layers[place], classes_);
        if (!layer.ok()) return Annotate(layer.status(), absl::StrCat("layer ", name));
        last = graph_.Add(name, *std::move(layer), {last});
      }
    }
    return last;
  }

  Graph& graph() { return graph_; }

 private:
  absl::StatusOr<NodeId> AddResidual(const v1::ResidualSpec& spec, NodeId from,
                                     const std::string& name, int depth) {
    if (depth == kMaxResidualDepth) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", name, ": more than ",
                                                     kMaxResidualDepth, " nested residual blocks"));
    }
    if (spec.layers().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", name, ": residual has no layers"));
    }
    ASSIGN_OR_RETURN(NodeId branch, AddLayers(spec.layers(), spec.layers_size(), from,
                                              absl::StrCat(name, ".layers."), depth + 1));
    if (spec.drop_probability() != 0) {
      branch = graph_.Add(absl::StrCat(name, ".stochastic_depth"),
                          StochasticDepth{.probability = spec.drop_probability()}, {branch});
    }
    ASSIGN_OR_RETURN(const NodeId shortcut, AddLayers(spec.shortcut(), spec.shortcut_size(), from,
                                                      absl::StrCat(name, ".shortcut."), depth + 1));
    return graph_.Add(name, Add{}, {branch, shortcut});
  }

  const int64_t classes_;
  Graph graph_;
  int layers_added_ = 0;
};

}  // namespace

absl::StatusOr<Graph> BuildCustomNetwork(const v1::ModelSpec& spec, const ImageShape& input,
                                         const ModelHead& head) {
  const int layers = spec.layers_size();
  const bool replace_last = head.projection.has_value();
  if (layers == 0) return absl::InvalidArgumentError("model.layers is empty");
  if (replace_last && !spec.layers(layers - 1).has_linear()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", layers - 1, ": the last layer must be linear because a projection replaces it"));
  }
  CustomNetwork network(input, head.classes);
  RETURN_IF_ERROR(network
                      .AddLayers(spec.layers(), replace_last ? layers - 1 : layers, kInput,
                                 /*prefix=*/"", /*depth=*/0)
                      .status());
  if (replace_last) {
    RETURN_IF_ERROR(AddHead(absl::StrCat(layers - 1), Linear{}, head, network.graph()));
  }
  return std::move(network.graph());
}

}  // namespace muster::nn
