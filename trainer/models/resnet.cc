#include "trainer/models/resnet.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "trainer/models/chain.h"
#include "trainer/models/residual.h"

namespace muster::nn {
namespace {

struct Variant {
  absl::string_view name;
  bool bottleneck;            // blocks of three convolutions; the last is four times as wide
  std::array<int, 4> blocks;  // by stage
};

constexpr std::array<Variant, 4> kVariants = {{
    {"resnet18", false, {2, 2, 2, 2}},
    {"resnet34", false, {3, 4, 6, 3}},
    {"resnet50", true, {3, 4, 6, 3}},
    {"resnet101", true, {3, 4, 23, 3}},
}};

const Variant* Find(absl::string_view name) {
  for (const Variant& variant : kVariants) {
    if (variant.name == name) return &variant;
  }
  return nullptr;
}

// For odd kernels; stride 1 keeps the size.
Conv2d Convolution(int64_t out_channels, int64_t kernel, int64_t stride) {
  return {.out_channels = out_channels,
          .kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .bias = false,
          .initialization = Initialization::kKaimingNormalFanOut};
}

class ResNet {
 public:
  ResNet(const Variant& variant, const v1::ModelSpec& spec, const ImageShape& input)
      : variant_(variant), spec_(spec) {
    graph_.input = input;
  }

  absl::StatusOr<Graph> Build(const ModelHead& head) && {
    AddStem();
    for (size_t stage = 0; stage < variant_.blocks.size(); ++stage) {
      for (int block = 0; block < variant_.blocks[stage]; ++block) {
        AddBlock(absl::StrCat("layer", stage + 1, ".", block, "."), int64_t{64} << stage,
                 /*stride=*/stage > 0 && block == 0 ? 2 : 1);
      }
    }
    Chain(&graph_, last_).Add("avgpool", AdaptiveAvgPool2d{}).Add("flatten", Flatten{});
    RETURN_IF_ERROR(AddHead("fc", Linear{.out_features = head.classes}, head, graph_));
    return std::move(graph_);
  }

 private:
  void AddStem() {
    Chain stem(&graph_);
    stem.Add("conv1",
             spec_.small_stem() ? Convolution(channels_, 3, 1) : Convolution(channels_, 7, 2))
        .Add("bn1", BatchNorm2d{})
        .Add("relu", Relu{});
    const bool pool = spec_.has_stem_pool() ? spec_.stem_pool() : !spec_.small_stem();
    if (pool) stem.Add("maxpool", MaxPool2d{.kernel = 3, .stride = 2, .padding = 1});
    last_ = stem.last();
  }

  void AddBlock(const std::string& prefix, int64_t width, int64_t stride) {
    const int64_t out_channels = variant_.bottleneck ? 4 * width : width;
    const BatchNorm2d last_norm{.zero_weight = spec_.zero_init_residual()};
    Chain branch(&graph_, last_, prefix);
    if (variant_.bottleneck) {
      branch.Add("conv1", Convolution(width, 1, 1)).Add("bn1", BatchNorm2d{}).Add("relu1", Relu{});
      branch.Add("conv2", Convolution(width, 3, stride));
      branch.Add("bn2", BatchNorm2d{}).Add("relu2", Relu{});
      branch.Add("conv3", Convolution(out_channels, 1, 1)).Add("bn3", last_norm);
    } else {
      branch.Add("conv1", Convolution(width, 3, stride));
      branch.Add("bn1", BatchNorm2d{}).Add("relu1", Relu{});
      branch.Add("conv2", Convolution(width, 3, 1)).Add("bn2", last_norm);
    }
    const double drop = DropProbability(spec_.stochastic_depth(), blocks_added_++, Blocks());
    if (drop > 0) branch.Add("stochastic_depth", StochasticDepth{.probability = drop});

    Chain shortcut(&graph_, last_, prefix);
    if (stride != 1 || channels_ != out_channels) {
      shortcut.Add("downsample.0", Convolution(out_channels, 1, stride));
      shortcut.Add("downsample.1", BatchNorm2d{});
    }
    const NodeId sum =
        graph_.Add(absl::StrCat(prefix, "add"), Add{}, {branch.last(), shortcut.last()});
    last_ = Chain(&graph_, sum, prefix).Add("relu", Relu{}).last();
    channels_ = out_channels;
  }

  int Blocks() const { return std::accumulate(variant_.blocks.begin(), variant_.blocks.end(), 0); }

  const Variant& variant_;
  const v1::ModelSpec& spec_;
  Graph graph_;
  NodeId last_ = kInput;
  int64_t channels_ = 64;  // channels of the last node
  int blocks_added_ = 0;
};

}  // namespace

bool IsResNet(absl::string_view name) { return Find(name) != nullptr; }

absl::StatusOr<Graph> BuildResNet(const v1::ModelSpec& spec, const ImageShape& input,
                                  const ModelHead& head) {
  const Variant* variant = Find(spec.name());
  if (variant == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("'", spec.name(), "' is not a ResNet"));
  }
  return ResNet(*variant, spec, input).Build(head);
}

}  // namespace muster::nn
