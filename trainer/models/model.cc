#include "trainer/models/model.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "trainer/graph/shapes.h"
#include "trainer/models/custom_network.h"
#include "trainer/models/mobilenet_v2.h"
#include "trainer/models/resnet.h"
#include "trainer/models/small_models.h"

namespace muster::nn {
namespace {

absl::Status CheckProbability(const char* field, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model.", field, ": ", value, " is not in [0, 1)"));
}

absl::Status Check(const v1::ModelSpec& spec, const ModelHead& head) {
  RETURN_IF_ERROR(CheckProbability("dropout", spec.dropout()));
  RETURN_IF_ERROR(CheckProbability("stochastic_depth", spec.stochastic_depth()));
  if (!spec.layers().empty() && !spec.name().empty()) {
    return absl::InvalidArgumentError("model must have either name or layers");
  }
  if (head.classes < 1 && !head.projection.has_value()) {
    return absl::InvalidArgumentError("the model needs at least one class");
  }
  return absl::OkStatus();
}

absl::StatusOr<Graph> Build(const v1::ModelSpec& spec, const ImageShape& input,
                            const ModelHead& head) {
  if (!spec.layers().empty()) return BuildCustomNetwork(spec, input, head);
  if (spec.name() == "small_cnn") return BuildSmallCnn(spec, input, head);
  if (spec.name() == "mlp") return BuildMlp(spec, input, head);
  if (spec.name() == "mobilenet_v2") return BuildMobileNetV2(spec, input, head);
  if (IsResNet(spec.name())) return BuildResNet(spec, input, head);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown model '", spec.name(),
                   "'; known models: small_cnn, mlp, resnet18, resnet34, resnet50, resnet101, "
                   "mobilenet_v2; or set model.layers"));
}

}  // namespace

absl::StatusOr<Graph> BuildModel(const v1::ModelSpec& spec, const ImageShape& input,
                                 const ModelHead& head) {
  RETURN_IF_ERROR(Check(spec, head));
  ASSIGN_OR_RETURN(Graph graph, Build(spec, input, head));
  const absl::StatusOr<std::vector<ValueShape>> shapes = InferShapes(graph);
  if (!shapes.ok()) {
    return Annotate(shapes.status(), absl::StrCat("model on images of ", input.height, "x",
                                                  input.width, "x", input.channels));
  }
  const int64_t width = shapes->back().elements();
  if (!head.projection.has_value() && width != head.classes) {
    return absl::InvalidArgumentError(absl::StrCat("last layer ", graph.nodes.back().name, " has ",
                                                   width, " outputs, but there are ", head.classes,
                                                   " classes"));
  }
  return graph;
}

absl::StatusOr<Graph> BuildModel(const v1::ModelSpec& spec, const ImageShape& input,
                                 int64_t classes) {
  return BuildModel(spec, input, ModelHead{.classes = classes});
}

}  // namespace muster::nn
