#include "worker/nn/model.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace muster::nn {
namespace {

// Layers one after the other, named by their place as torch.nn.Sequential does.
class Sequential {
 public:
  explicit Sequential(const ImageShape& input) { graph_.input = input; }

  Sequential& Add(Layer layer) {
    last_ = graph_.Add(absl::StrCat(graph_.nodes.size()), std::move(layer), {last_});
    return *this;
  }
  Graph Build() && { return std::move(graph_); }

 private:
  Graph graph_;
  NodeId last_ = kInput;
};

Graph SmallCnn(const v1::ModelSpec& spec, const ImageShape& input, int64_t classes) {
  const bool batch_norm = spec.has_batch_norm() ? spec.batch_norm() : true;
  Sequential model(input);
  for (const int64_t channels : {32, 64}) {
    model.Add(Conv2d{.out_channels = channels, .kernel = 3, .stride = 1, .padding = 1});
    if (batch_norm) model.Add(BatchNorm2d{});
    model.Add(Relu{}).Add(MaxPool2d{});
  }
  model.Add(Flatten{}).Add(Linear{.out_features = 128}).Add(Relu{});
  if (spec.dropout() > 0) model.Add(Dropout{.probability = spec.dropout()});
  model.Add(Linear{.out_features = classes});
  return std::move(model).Build();
}

Graph Mlp(const v1::ModelSpec& spec, const ImageShape& input, int64_t classes) {
  std::vector<int64_t> hidden(spec.hidden().begin(), spec.hidden().end());
  if (hidden.empty()) hidden = {256, 128};
  Sequential model(input);
  model.Add(Flatten{});
  for (const int64_t width : hidden) model.Add(Linear{.out_features = width}).Add(Relu{});
  if (spec.dropout() > 0) model.Add(Dropout{.probability = spec.dropout()});
  model.Add(Linear{.out_features = classes});
  return std::move(model).Build();
}

}  // namespace

absl::StatusOr<Graph> BuildModel(const v1::ModelSpec& spec, const ImageShape& input,
                                 int64_t classes) {
  if (!(spec.dropout() >= 0 && spec.dropout() < 1)) {
    return absl::InvalidArgumentError("model.dropout must be at least 0 and below 1");
  }
  if (classes < 1 || input.height < 1 || input.width < 1 || input.channels < 1) {
    return absl::InvalidArgumentError("a model needs an input and at least one class");
  }
  if (spec.name() == "small_cnn") {
    if (input.height < 4 || input.width < 4) {
      return absl::InvalidArgumentError(absl::StrCat("small_cnn needs images of at least 4x4, not ",
                                                     input.height, "x", input.width));
    }
    return SmallCnn(spec, input, classes);
  }
  if (spec.name() == "mlp") {
    for (const uint32_t width : spec.hidden()) {
      if (width == 0) return absl::InvalidArgumentError("model.hidden: a layer of no width");
    }
    return Mlp(spec, input, classes);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown model '", spec.name(), "'; there are small_cnn and mlp"));
}

}  // namespace muster::nn
