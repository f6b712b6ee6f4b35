#include "trainer/models/mobilenet_v2.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status.h"
#include "trainer/models/chain.h"
#include "trainer/models/residual.h"

namespace muster::nn {
namespace {

constexpr double kDefaultDropout = 0.2;

// Table 2 of the paper: a stage of inverted residual blocks; the stride applies to the first block.
struct Stage {
  int64_t expansion;
  int64_t channels;
  int blocks;
  int64_t stride;
};
constexpr std::array<Stage, 7> kStages = {{
    {1, 16, 1, 1},
    {6, 24, 2, 2},
    {6, 32, 3, 2},
    {6, 64, 4, 2},
    {6, 96, 3, 1},
    {6, 160, 3, 2},
    {6, 320, 1, 1},
}};

// All blocks of a stage except the first keep size and channels, and can therefore have a shortcut.
constexpr int ResidualBlocks() {
  int count = 0;
  for (const Stage& stage : kStages) count += stage.blocks - 1;
  return count;
}

Conv2d Convolution(int64_t out_channels, int64_t kernel, int64_t stride, int64_t groups) {
  return {.out_channels = out_channels,
          .kernel = kernel,
          .stride = stride,
          .padding = kernel / 2,
          .groups = groups,
          .bias = false,
          .initialization = Initialization::kKaimingNormalFanOut};
}

void AddNormalized(absl::string_view name, const Conv2d& convolution, Chain& chain) {
  chain.Add(absl::StrCat(name, ".0"), convolution)
      .Add(absl::StrCat(name, ".1"), BatchNorm2d{})
      .Add(absl::StrCat(name, ".2"), Relu6{});
}

class MobileNetV2 {
 public:
  MobileNetV2(const v1::ModelSpec& spec, const ImageShape& input) : spec_(spec) {
    graph_.input = input;
  }

  absl::StatusOr<Graph> Build(const ModelHead& head) && {
    Chain stem(&graph_);
    AddNormalized("features.0", Convolution(channels_, 3, 2, 1), stem);
    last_ = stem.last();
    int feature = 1;
    for (const Stage& stage : kStages) {
      for (int block = 0; block < stage.blocks; ++block) {
        AddBlock(absl::StrCat("features.", feature++, "."), stage, block == 0);
      }
    }
    Chain end(&graph_, last_);
    AddNormalized(absl::StrCat("features.", feature), Convolution(1280, 1, 1, 1), end);
    end.Add("avgpool", AdaptiveAvgPool2d{}).Add("flatten", Flatten{});
    const double dropout = spec_.has_dropout() ? spec_.dropout() : kDefaultDropout;
    if (dropout > 0) end.Add("classifier.0", Dropout{.probability = dropout});
    const Linear classifier{.out_features = head.classes,
                            .initialization = Initialization::kNormal,
                            .standard_deviation = 0.01};
    RETURN_IF_ERROR(AddHead("classifier.1", classifier, head, graph_));
    return std::move(graph_);
  }

 private:
  // Expands the channels, applies a depthwise convolution, and projects to fewer channels without
  // an activation.
  void AddBlock(const std::string& prefix, const Stage& stage, bool first) {
    const int64_t hidden = channels_ * stage.expansion;
    Chain branch(&graph_, last_, absl::StrCat(prefix, "conv."));
    int place = 0;
    if (stage.expansion != 1) {
      AddNormalized(absl::StrCat(place++), Convolution(hidden, 1, 1, 1), branch);
    }
    AddNormalized(absl::StrCat(place++), Convolution(hidden, 3, first ? stage.stride : 1, hidden),
                  branch);
    branch.Add(absl::StrCat(place++), Convolution(stage.channels, 1, 1, 1));
    branch.Add(absl::StrCat(place++), BatchNorm2d{});
    last_ = first ? branch.last() : AddShortcut(prefix, branch);
    channels_ = stage.channels;
  }

  NodeId AddShortcut(const std::string& prefix, Chain& branch) {
    const double drop =
        DropProbability(spec_.stochastic_depth(), residual_blocks_added_++, ResidualBlocks());
    if (drop > 0) branch.Add("stochastic_depth", StochasticDepth{.probability = drop});
    return graph_.Add(absl::StrCat(prefix, "add"), Add{}, {branch.last(), last_});
  }

  const v1::ModelSpec& spec_;
  Graph graph_;
  NodeId last_ = kInput;
  int64_t channels_ = 32;  // channels of the last node
  int residual_blocks_added_ = 0;
};

}  // namespace

absl::StatusOr<Graph> BuildMobileNetV2(const v1::ModelSpec& spec, const ImageShape& input,
                                       const ModelHead& head) {
  return MobileNetV2(spec, input).Build(head);
}

}  // namespace muster::nn
