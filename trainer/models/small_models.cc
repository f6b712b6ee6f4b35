#include "trainer/models/small_models.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "trainer/models/chain.h"

namespace muster::nn {
namespace {

// Names every layer by its position.
class Sequential {
 public:
  explicit Sequential(const ImageShape& input) { graph_.input = input; }

  Sequential& Add(Layer layer) {
    chain_.Add(NextName(), std::move(layer));
    return *this;
  }
  absl::StatusOr<Graph> Finish(const v1::ModelSpec& spec, const ModelHead& head) && {
    if (spec.dropout() > 0) Add(Dropout{.probability = spec.dropout()});
    RETURN_IF_ERROR(AddHead(NextName(), Linear{.out_features = head.classes}, head, graph_));
    return std::move(graph_);
  }

 private:
  std::string NextName() const { return absl::StrCat(graph_.nodes.size()); }

  Graph graph_;
  Chain chain_{&graph_};
};

}  // namespace

absl::StatusOr<Graph> BuildSmallCnn(const v1::ModelSpec& spec, const ImageShape& input,
                                    const ModelHead& head) {
  const bool batch_norm = spec.has_batch_norm() ? spec.batch_norm() : true;
  Sequential model(input);
  for (const int64_t channels : {32, 64}) {
    model.Add(Conv2d{.out_channels = channels, .kernel = 3, .padding = 1});
    if (batch_norm) model.Add(BatchNorm2d{});
    model.Add(Relu{}).Add(MaxPool2d{});
  }
  model.Add(Flatten{}).Add(Linear{.out_features = 128}).Add(Relu{});
  return std::move(model).Finish(spec, head);
}

absl::StatusOr<Graph> BuildMlp(const v1::ModelSpec& spec, const ImageShape& input,
                               const ModelHead& head) {
  std::vector<int64_t> hidden(spec.hidden().begin(), spec.hidden().end());
  if (hidden.empty()) hidden = {256, 128};
  Sequential model(input);
  model.Add(Flatten{});
  for (const int64_t width : hidden) model.Add(Linear{.out_features = width}).Add(Relu{});
  return std::move(model).Finish(spec, head);
}

}  // namespace muster::nn
