#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "spec/schema.h"
#include "spec/validate_parts.h"

namespace muster::spec {
namespace {

using Layers = google::protobuf::RepeatedPtrField<v1::LayerSpec>;

constexpr int kMaxHiddenLayers = 64;
constexpr int kMaxLayers = 1024;  // those in residual blocks included
constexpr uint32_t kMaxKernel = 1024;
constexpr uint32_t kMaxPoolKernel = 15;  // of max_pool2d: a place within it fits into a byte

// Checks layers and those inside them.
class LayerChecker {
 public:
  explicit LayerChecker(Problems& problems) : problems_(problems) {}

  // `depth`: of these layers, 1 outside of any residual block.
  void Check(const std::string& where, const Layers& layers, int depth) {
    if (depth > kLayerDepth) {
      problems_.Add(where,
                    absl::StrCat("layers lie in each other more than ", kLayerDepth, " deep"));
      return;
    }
    for (int i = 0; i < layers.size(); ++i) {
      if (++count_ == kMaxLayers + 1) {
        problems_.Add("train.model.layers", absl::StrCat("has more than ", kMaxLayers, " layers"));
      }
      if (count_ > kMaxLayers) return;
      CheckLayer(absl::StrCat(where, "[", i, "]"), layers[i], depth);
    }
  }

 private:
  void CheckLayer(const std::string& where, const v1::LayerSpec& layer, int depth) {
    switch (layer.kind_case()) {
      case v1::LayerSpec::kConv2D:
        return CheckConv2d(where + ".conv2d", layer.conv2d());
      case v1::LayerSpec::kBatchNorm2D:
        return CheckBatchNorm(where + ".batch_norm2d", layer.batch_norm2d());
      case v1::LayerSpec::kMaxPool2D:
        CheckWindow(where + ".max_pool2d", layer.max_pool2d(), kMaxPoolKernel);
        problems_.Require(layer.max_pool2d().padding() <= layer.max_pool2d().kernel() / 2,
                          where + ".max_pool2d.padding", "at most half the kernel");
        return;
      case v1::LayerSpec::kAvgPool2D:
        CheckWindow(where + ".avg_pool2d", layer.avg_pool2d(), kMaxKernel);
        problems_.RequireOption(layer.avg_pool2d().padding() == 0, where + ".avg_pool2d.padding",
                                "max_pool2d");
        return;
      case v1::LayerSpec::kLinear:
        problems_.RequireRange(where + ".linear.out_features", layer.linear().out_features(), 0,
                               kMaxWidth);
        return;
      case v1::LayerSpec::kDropout:
        RequireGiven(where + ".dropout.probability", layer.dropout().probability() != 0);
        RequireShare(where + ".dropout.probability", layer.dropout().probability());
        return;
      case v1::LayerSpec::kResidual:
        return CheckResidual(where + ".residual", layer.residual(), depth);
      case v1::LayerSpec::kRelu:
      case v1::LayerSpec::kRelu6:
      case v1::LayerSpec::kAdaptiveAvgPool2D:
      case v1::LayerSpec::kFlatten:
        return;
      case v1::LayerSpec::KIND_NOT_SET:
        return problems_.Add(where, "names no layer");
    }
  }

  void CheckConv2d(const std::string& where, const v1::Conv2dSpec& conv2d) {
    RequireGiven(where + ".out_channels", conv2d.out_channels() != 0);
    problems_.RequireRange(where + ".out_channels", conv2d.out_channels(), 0, kMaxWidth);
    CheckWindow(where, conv2d, kMaxKernel);
    problems_.RequireRange(where + ".padding", conv2d.padding(), 0, kMaxKernel);
    problems_.Require(conv2d.groups() >= 1 && conv2d.out_channels() % conv2d.groups() == 0,
                      where + ".groups", "a divisor of out_channels");
  }

  void CheckBatchNorm(const std::string& where, const v1::BatchNorm2dSpec& batch_norm) {
    problems_.Require(batch_norm.epsilon() > 0 && batch_norm.epsilon() <= 1, where + ".epsilon",
                      "above 0 and at most 1");
    problems_.Require(batch_norm.momentum() > 0 && batch_norm.momentum() <= 1, where + ".momentum",
                      "above 0 and at most 1");
  }

  // Of anything with a kernel and a stride.
  template <typename Layer>
  void CheckWindow(const std::string& where, const Layer& layer, uint32_t max_kernel) {
    RequireGiven(where + ".kernel", layer.kernel() != 0);
    problems_.RequireRange(where + ".kernel", layer.kernel(), 0, max_kernel);
    // The stride of a pool is its kernel where nobody gives it.
    if (layer.kernel() != 0) {
      problems_.RequireRange(where + ".stride", layer.stride(), 1, kMaxKernel);
    }
  }

  void CheckResidual(const std::string& where, const v1::ResidualSpec& residual, int depth) {
    RequireGiven(where + ".layers", !residual.layers().empty());
    Check(where + ".layers", residual.layers(), depth + 1);
    Check(where + ".shortcut", residual.shortcut(), depth + 1);
    RequireShare(where + ".drop_probability", residual.drop_probability());
  }

  void RequireGiven(const std::string& path, bool given) {
    if (!given) problems_.Add(path, "is missing");
  }

  void RequireShare(const std::string& path, double value) {
    problems_.Require(value >= 0 && value < 1, path, "from 0 to below 1");
  }

  Problems& problems_;
  int count_ = 0;
};

// Options of some models only.
void CheckOwners(const v1::ModelSpec& model, Problems& problems) {
  const std::string& name = model.name();
  const bool resnet = absl::StartsWith(name, "resnet");
  const bool mobilenet = name == "mobilenet_v2";
  problems.RequireOption(!model.batch_norm() || name == "small_cnn", "train.model.batch_norm",
                         "small_cnn");
  problems.RequireOption(model.dropout() == 0 || name == "small_cnn" || name == "mlp" || mobilenet,
                         "train.model.dropout", "small_cnn, mlp and mobilenet_v2");
  problems.RequireOption(model.hidden().empty() || name == "mlp", "train.model.hidden", "mlp");
  problems.RequireOption(model.stochastic_depth() == 0 || resnet || mobilenet,
                         "train.model.stochastic_depth", "the resnets and mobilenet_v2");
  problems.RequireOption(!model.zero_init_residual() || resnet, "train.model.zero_init_residual",
                         "the resnets");
  problems.RequireOption(!model.small_stem() || resnet, "train.model.small_stem", "the resnets");
  problems.RequireOption(!model.has_stem_pool() || resnet, "train.model.stem_pool", "the resnets");
}

}  // namespace

void CheckModel(const v1::ModelSpec& model, Problems& problems) {
  if (model.layers().empty()) {
    RequireWord("train.model.name", model, "name", problems);
  } else if (!model.name().empty()) {
    problems.Add("train.model", "has name and layers: only one of them");
  }
  problems.Require(model.dropout() >= 0 && model.dropout() < 1, "train.model.dropout",
                   "from 0 to below 1");
  problems.Require(model.stochastic_depth() >= 0 && model.stochastic_depth() < 1,
                   "train.model.stochastic_depth", "from 0 to below 1");
  problems.Require(model.hidden_size() <= kMaxHiddenLayers, "train.model.hidden",
                   absl::StrCat("at most ", kMaxHiddenLayers, " widths"));
  for (const uint32_t width : model.hidden()) {
    if (width < 1 || width > kMaxWidth) {
      problems.Add("train.model.hidden",
                   absl::StrCat("widths must be from 1 to ", kMaxWidth, ", not ", width));
    }
  }
  CheckOwners(model, problems);
  LayerChecker(problems).Check("train.model.layers", model.layers(), 1);
}

}  // namespace muster::spec
