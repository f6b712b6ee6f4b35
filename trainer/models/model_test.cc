#include "trainer/models/model.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "trainer/graph/plan.h"
#include "trainer/models/custom_network.h"

namespace muster::nn {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

v1::ModelSpec Spec(const std::string& name) {
  v1::ModelSpec spec;
  spec.set_name(name);
  return spec;
}

std::unique_ptr<Plan> CompileModel(const v1::ModelSpec& spec, const ImageShape& input) {
  auto graph = BuildModel(spec, input, 10);
  EXPECT_TRUE(graph.ok()) << graph.status();
  auto plan = Compile(*graph, {.max_batch = 2});
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

int64_t Count(absl::Span<const ParameterInfo> infos) {
  int64_t total = 0;
  for (const ParameterInfo& info : infos) {
    int64_t product = 1;
    for (const int64_t dimension : info.shape) product *= dimension;
    total += product;
  }
  return total;
}

std::vector<std::string> Names(absl::Span<const ParameterInfo> infos) {
  std::vector<std::string> names;
  for (const ParameterInfo& info : infos) names.push_back(info.name);
  return names;
}

std::vector<int64_t> Shape(const Plan& plan, const std::string& parameter) {
  for (const ParameterInfo& info : plan.parameters()) {
    if (info.name == parameter) return info.shape;
  }
  return {};
}

template <typename LayerType>
std::vector<Node> NodesOf(const Graph& graph) {
  std::vector<Node> nodes;
  for (const Node& node : graph.nodes) {
    if (std::holds_alternative<LayerType>(node.layer)) nodes.push_back(node);
  }
  return nodes;
}

// Returns the layer of that name; throws if it does not exist or has another type.
template <typename LayerType>
LayerType Find(const Graph& graph, const std::string& name) {
  for (const Node& node : graph.nodes) {
    if (node.name == name) return std::get<LayerType>(node.layer);
  }
  throw std::out_of_range(name);
}

std::vector<std::string> LastNames(const Graph& graph, size_t count) {
  std::vector<std::string> names;
  for (size_t i = graph.nodes.size() - count; i < graph.nodes.size(); ++i) {
    names.push_back(graph.nodes[i].name);
  }
  return names;
}

v1::ModelSpec Layers(const std::string& text) {
  v1::ModelSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

MATCHER_P(IsInvalidArgument, message, "") {
  return arg.status().code() == absl::StatusCode::kInvalidArgument &&
         ExplainMatchResult(message, std::string(arg.status().message()), result_listener);
}

TEST(ModelTest, SmallCnnMatchesPyTorchSequential) {
  const auto plan = CompileModel(Spec("small_cnn"), {28, 28, 1});
  EXPECT_EQ(Count(plan->parameters()), 421834);
  EXPECT_THAT(Names(plan->parameters()),
              ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "4.weight", "4.bias",
                          "5.weight", "5.bias", "9.weight", "9.bias", "11.weight", "11.bias"));
  EXPECT_THAT(Names(plan->buffers()),
              ElementsAre("1.running_mean", "1.running_var", "5.running_mean", "5.running_var"));
  EXPECT_THAT(plan->parameters()[0].shape, ElementsAre(32, 1, 3, 3));
  EXPECT_THAT(plan->parameters()[8].shape, ElementsAre(128, 3136));
}

TEST(ModelTest, SmallCnnOptions) {
  v1::ModelSpec spec = Spec("small_cnn");
  spec.set_batch_norm(false);
  spec.set_dropout(0.25);
  const auto plan = CompileModel(spec, {28, 28, 1});
  EXPECT_THAT(Names(plan->parameters()), ElementsAre("0.weight", "0.bias", "3.weight", "3.bias",
                                                     "7.weight", "7.bias", "10.weight", "10.bias"));
  EXPECT_THAT(plan->buffers(), testing::IsEmpty());
  EXPECT_EQ(Count(plan->parameters()), 421834 - 192);
}

TEST(ModelTest, Mlp) {
  v1::ModelSpec spec = Spec("mlp");
  const auto by_default = CompileModel(spec, {28, 28, 1});
  EXPECT_EQ(Count(by_default->parameters()), 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10);
  EXPECT_THAT(Names(by_default->parameters()),
              ElementsAre("1.weight", "1.bias", "3.weight", "3.bias", "5.weight", "5.bias"));
  spec.add_hidden(7);
  const auto narrow = CompileModel(spec, {5, 3, 2});
  EXPECT_EQ(Count(narrow->parameters()), 30 * 7 + 7 + 7 * 10 + 10);
}

TEST(ModelTest, RejectsInvalidSpecs) {
  EXPECT_THAT(BuildModel(Spec("alexnet"), {28, 28, 1}, 10).status().message(),
              HasSubstr("unknown model 'alexnet'"));
  EXPECT_THAT(BuildModel(Spec("small_cnn"), {3, 28, 1}, 10),
              IsInvalidArgument(HasSubstr("model on images of 3x28x1")));
  EXPECT_THAT(BuildModel(Spec("small_cnn"), {28, 28, 1}, 0), IsInvalidArgument(HasSubstr("class")));
  v1::ModelSpec dropout = Spec("mlp");
  dropout.set_dropout(1);
  EXPECT_THAT(BuildModel(dropout, {28, 28, 1}, 10), IsInvalidArgument(HasSubstr("model.dropout")));
  v1::ModelSpec no_width = Spec("mlp");
  no_width.add_hidden(0);
  EXPECT_THAT(BuildModel(no_width, {28, 28, 1}, 10), IsInvalidArgument(HasSubstr("layer 1")));
  v1::ModelSpec depth = Spec("resnet18");
  depth.set_stochastic_depth(-0.1);
  EXPECT_THAT(BuildModel(depth, {28, 28, 1}, 10),
              IsInvalidArgument(HasSubstr("model.stochastic_depth")));
}

TEST(ModelTest, HaveAsManyParametersAsInTorchvision) {
  const std::pair<const char*, int64_t> counts[] = {{"resnet18", 11689512},
                                                    {"resnet34", 21797672},
                                                    {"resnet50", 25557032},
                                                    {"resnet101", 44549160},
                                                    {"mobilenet_v2", 3504872}};
  for (const auto& [name, count] : counts) {
    const auto plan = Compile(*BuildModel(Spec(name), {32, 32, 3}, 1000), {.max_batch = 1});
    ASSERT_TRUE(plan.ok()) << name << ": " << plan.status();
    EXPECT_EQ(Count((*plan)->parameters()), count) << name;
  }
}

TEST(ModelTest, ResNetsSupportAnySizeAndChannels) {
  for (const ImageShape& input : {ImageShape{28, 28, 1}, {33, 57, 3}, {224, 224, 4}}) {
    EXPECT_TRUE(BuildModel(Spec("resnet50"), input, 10).ok());
    EXPECT_TRUE(BuildModel(Spec("mobilenet_v2"), input, 10).ok());
  }
}

TEST(ModelTest, ResNetParameterNames) {
  const auto plan = CompileModel(Spec("resnet18"), {28, 28, 1});
  const std::vector<std::string> names = Names(plan->parameters());
  EXPECT_EQ(names.size(), 62);
  EXPECT_THAT(std::vector<std::string>(names.begin(), names.begin() + 9),
              ElementsAre("conv1.weight", "bn1.weight", "bn1.bias", "layer1.0.conv1.weight",
                          "layer1.0.bn1.weight", "layer1.0.bn1.bias", "layer1.0.conv2.weight",
                          "layer1.0.bn2.weight", "layer1.0.bn2.bias"));
  EXPECT_THAT(names, IsSupersetOf({"layer2.0.downsample.0.weight", "layer4.1.bn2.bias"}));
  EXPECT_THAT(names, Not(Contains("layer1.0.downsample.0.weight")));
  EXPECT_EQ(names.back(), "fc.bias");
  EXPECT_THAT(Names(plan->buffers()), Contains("layer3.0.downsample.1.running_var"));
  EXPECT_THAT(Shape(*plan, "conv1.weight"), ElementsAre(64, 1, 7, 7));
  // The bottleneck's first stage already increases the width.
  const auto bottleneck = CompileModel(Spec("resnet50"), {28, 28, 1});
  EXPECT_THAT(Shape(*bottleneck, "layer1.0.downsample.0.weight"), ElementsAre(256, 64, 1, 1));
  EXPECT_THAT(Shape(*bottleneck, "layer4.2.conv3.weight"), ElementsAre(2048, 512, 1, 1));
}

TEST(ModelTest, ResNetBottleneckHasStrideInThe3x3Convolution) {
  const Graph graph = *BuildModel(Spec("resnet50"), {64, 64, 3}, 10);
  EXPECT_EQ(Find<Conv2d>(graph, "layer2.0.conv1").stride, 1);
  EXPECT_EQ(Find<Conv2d>(graph, "layer2.0.conv2").stride, 2);
  EXPECT_EQ(Find<Conv2d>(graph, "layer2.1.conv2").stride, 1);
}

TEST(ModelTest, ResNetSmallStem) {
  v1::ModelSpec spec = Spec("resnet18");
  spec.set_small_stem(true);
  const Graph graph = *BuildModel(spec, {32, 32, 3}, 10);
  const Conv2d& stem = Find<Conv2d>(graph, "conv1");
  EXPECT_EQ(stem.kernel, 3);
  EXPECT_EQ(stem.stride, 1);
  EXPECT_THAT(NodesOf<MaxPool2d>(graph), IsEmpty());
  spec.set_stem_pool(true);
  EXPECT_EQ(NodesOf<MaxPool2d>(*BuildModel(spec, {32, 32, 3}, 10)).size(), 1);
}

TEST(ModelTest, ResNetZeroInitResidual) {
  v1::ModelSpec spec = Spec("resnet50");
  for (const bool zero : {false, true}) {
    spec.set_zero_init_residual(zero);
    const Graph graph = *BuildModel(spec, {32, 32, 3}, 10);
    EXPECT_EQ(Find<BatchNorm2d>(graph, "layer3.5.bn3").zero_weight, zero);
    EXPECT_FALSE(Find<BatchNorm2d>(graph, "layer3.5.bn2").zero_weight);
    EXPECT_FALSE(Find<BatchNorm2d>(graph, "layer3.0.downsample.1").zero_weight);
  }
}

TEST(ModelTest, StochasticDepthIncreasesLinearlyToTheLastBlock) {
  v1::ModelSpec spec = Spec("resnet18");
  spec.set_stochastic_depth(0.35);
  const auto resnet = NodesOf<StochasticDepth>(*BuildModel(spec, {28, 28, 1}, 10));
  ASSERT_EQ(resnet.size(), 7);  // the first block always runs
  for (int i = 0; i < 7; ++i) {
    EXPECT_DOUBLE_EQ(std::get<StochasticDepth>(resnet[i].layer).probability, 0.35 * (i + 1) / 7);
  }
  EXPECT_EQ(resnet.back().name, "layer4.1.stochastic_depth");

  spec.set_name("mobilenet_v2");
  const auto mobilenet = NodesOf<StochasticDepth>(*BuildModel(spec, {28, 28, 1}, 10));
  ASSERT_EQ(mobilenet.size(), 9);  // ten blocks have a shortcut
  EXPECT_EQ(mobilenet.front().name, "features.5.conv.stochastic_depth");
  EXPECT_EQ(mobilenet.back().name, "features.16.conv.stochastic_depth");
  EXPECT_DOUBLE_EQ(std::get<StochasticDepth>(mobilenet.back().layer).probability, 0.35);
  EXPECT_THAT(NodesOf<StochasticDepth>(*BuildModel(Spec("resnet18"), {28, 28, 1}, 10)), IsEmpty());
}

TEST(ModelTest, MobileNetV2ParameterNames) {
  const auto plan = CompileModel(Spec("mobilenet_v2"), {28, 28, 1});
  const std::vector<std::string> names = Names(plan->parameters());
  EXPECT_EQ(names.size(), 158);
  EXPECT_THAT(std::vector<std::string>(names.begin(), names.begin() + 10),
              ElementsAre("features.0.0.weight", "features.0.1.weight", "features.0.1.bias",
                          "features.1.conv.0.0.weight", "features.1.conv.0.1.weight",
                          "features.1.conv.0.1.bias", "features.1.conv.1.weight",
                          "features.1.conv.2.weight", "features.1.conv.2.bias",
                          "features.2.conv.0.0.weight"));
  EXPECT_THAT(Shape(*plan, "features.2.conv.1.0.weight"), ElementsAre(96, 1, 3, 3));
  EXPECT_THAT(Shape(*plan, "features.18.0.weight"), ElementsAre(1280, 320, 1, 1));
  EXPECT_THAT(Shape(*plan, "classifier.1.weight"), ElementsAre(10, 1280));
}

TEST(ModelTest, MobileNetV2Dropout) {
  v1::ModelSpec spec = Spec("mobilenet_v2");
  EXPECT_EQ(Find<Dropout>(*BuildModel(spec, {28, 28, 1}, 10), "classifier.0").probability, 0.2);
  spec.set_dropout(0.5);
  EXPECT_EQ(Find<Dropout>(*BuildModel(spec, {28, 28, 1}, 10), "classifier.0").probability, 0.5);
  spec.set_dropout(0);
  EXPECT_THAT(NodesOf<Dropout>(*BuildModel(spec, {28, 28, 1}, 10)), IsEmpty());
}

TEST(ModelTest, ProjectionReplacesTheLastLayer) {
  const ModelHead by_default{.projection = std::vector<int64_t>()};
  const Graph resnet = *BuildModel(Spec("resnet18"), {28, 28, 1}, by_default);
  EXPECT_THAT(LastNames(resnet, 4), ElementsAre("flatten", "fc.0", "fc.1", "fc.2"));
  EXPECT_EQ(Find<Linear>(resnet, "fc.0").out_features, 512);
  EXPECT_EQ(Find<Linear>(resnet, "fc.2").out_features, 128);

  const ModelHead wide{.projection = std::vector<int64_t>{7, 5, 3}};
  EXPECT_THAT(LastNames(*BuildModel(Spec("mobilenet_v2"), {28, 28, 1}, wide), 5),
              ElementsAre("classifier.1.0", "classifier.1.1", "classifier.1.2", "classifier.1.3",
                          "classifier.1.4"));
  EXPECT_THAT(LastNames(*BuildModel(Spec("small_cnn"), {28, 28, 1}, by_default), 3),
              ElementsAre("11.0", "11.1", "11.2"));
  const Graph mlp = *BuildModel(Spec("mlp"), {28, 28, 1}, by_default);
  EXPECT_EQ(Find<Linear>(mlp, "5.0").out_features, 128);
  EXPECT_THAT(BuildModel(Spec("mlp"), {28, 28, 1}, {.projection = std::vector<int64_t>{7, 0}}),
              IsInvalidArgument(HasSubstr("layer 5.2")));
}

constexpr char kCustom[] = R"pb(
  layers { conv2d { out_channels: 8 kernel: 3 padding: 1 bias: false } }
  layers { batch_norm2d {} }
  layers { relu6 {} }
  layers {
    residual {
      layers { conv2d { out_channels: 16 kernel: 3 stride: 2 padding: 1 groups: 4 } }
      layers { residual { layers { relu {} } } }
      shortcut { conv2d { out_channels: 16 kernel: 1 stride: 2 } }
      drop_probability: 0.25
    }
  }
  layers { max_pool2d { kernel: 3 padding: 1 } }
  layers { avg_pool2d { kernel: 2 stride: 1 } }
  layers { adaptive_avg_pool2d {} }
  layers { flatten {} }
  layers { dropout { probability: 0.5 } }
  layers { linear {} }
)pb";

TEST(CustomNetworkTest, NamesLayersByPosition) {
  const auto plan = CompileModel(Layers(kCustom), {12, 12, 3});
  EXPECT_THAT(Names(plan->parameters()),
              ElementsAre("0.weight", "1.weight", "1.bias", "3.layers.0.weight", "3.layers.0.bias",
                          "3.shortcut.0.weight", "3.shortcut.0.bias", "9.weight", "9.bias"));
  EXPECT_THAT(Shape(*plan, "3.layers.0.weight"), ElementsAre(16, 2, 3, 3));
  EXPECT_THAT(Shape(*plan, "9.weight"), ElementsAre(10, 16));
}

TEST(CustomNetworkTest, DefaultsMatchPyTorch) {
  const Graph graph = *BuildModel(Layers(kCustom), {12, 12, 3}, 10);
  EXPECT_EQ(Find<MaxPool2d>(graph, "4").stride, 3);
  EXPECT_EQ(Find<AvgPool2d>(graph, "5").stride, 1);
  EXPECT_EQ(Find<BatchNorm2d>(graph, "1").epsilon, 1e-5);
  EXPECT_EQ(Find<BatchNorm2d>(graph, "1").momentum, 0.1);
  EXPECT_EQ(Find<StochasticDepth>(graph, "3.stochastic_depth").probability, 0.25);
  const Conv2d& shortcut = Find<Conv2d>(graph, "3.shortcut.0");
  EXPECT_TRUE(shortcut.bias);
  EXPECT_EQ(shortcut.groups, 1);
  EXPECT_EQ(shortcut.initialization, Initialization::kPyTorchDefault);
}

TEST(CustomNetworkTest, ProjectionReplacesTheLastLayer) {
  const ModelHead head{.projection = std::vector<int64_t>()};
  const Graph graph = *BuildModel(Layers(kCustom), {12, 12, 3}, head);
  EXPECT_THAT(LastNames(graph, 3), ElementsAre("9.0", "9.1", "9.2"));
  EXPECT_EQ(Find<Linear>(graph, "9.0").out_features, 16);
  EXPECT_THAT(BuildModel(Layers("layers { flatten {} } layers { linear {} } layers { relu {} }"),
                         {4, 4, 1}, head),
              IsInvalidArgument(HasSubstr("layer 2: the last layer must be linear")));
}

TEST(CustomNetworkTest, LastLayerMustHaveOneOutputPerClass) {
  EXPECT_THAT(BuildModel(Layers("layers { flatten {} } layers { linear { out_features: 7 } }"),
                         {4, 4, 1}, 10),
              IsInvalidArgument(AllOf(HasSubstr("7 outputs"), HasSubstr("10 classes"))));
  EXPECT_TRUE(BuildModel(Layers("layers { flatten {} }"), {2, 2, 1}, 4).ok());
}

TEST(CustomNetworkTest, ErrorsNameTheLayer) {
  const std::pair<const char*, const char*> wrong[] = {
      {"layers {}", "layer 0"},
      {"layers { conv2d {} } layers { flatten {} } layers { linear {} }", "layer 0"},
      {"layers { relu {} } layers { conv2d { out_channels: 4 kernel: 9 } }", "layer 1"},
      {"layers { avg_pool2d { kernel: 2 padding: 1 } }",
       "layer 0: avg_pool2d does not support padding"},
      {"layers { residual {} }", "layer 0: residual has no layers"},
      {"layers { residual { layers { relu {} } layers {} } }", "layer 0.layers.1"},
      {"layers { residual { layers { max_pool2d { kernel: 2 } } } } layers { flatten {} }",
       "layer 0"},
      {"layers { residual { layers { relu {} } drop_probability: 1.0 } } layers { flatten {} }",
       "layer 0.stochastic_depth"},
      {"layers { relu {} }", "flat"},
      {"name: 'mlp' layers { flatten {} }", "either name or layers"},
  };
  for (const auto& [text, message] : wrong) {
    EXPECT_THAT(BuildModel(Layers(text), {4, 4, 1}, 10), IsInvalidArgument(HasSubstr(message)))
        << text;
  }
}

TEST(CustomNetworkTest, LimitsNumberAndNestingOfLayers) {
  v1::ModelSpec relus;
  for (int i = 0; i < kMaxCustomLayers - 1; ++i) relus.add_layers()->mutable_relu();
  relus.add_layers()->mutable_flatten();
  EXPECT_TRUE(BuildModel(relus, {1, 1, 3}, 3).ok());
  relus.add_layers()->mutable_relu();
  EXPECT_THAT(BuildModel(relus, {1, 1, 3}, 3),
              IsInvalidArgument(HasSubstr("more than 2000 layers")));

  v1::LayerSpec nested;
  nested.mutable_relu();
  for (int i = 0; i < kMaxResidualDepth; ++i) {
    v1::LayerSpec outer;
    *outer.mutable_residual()->add_layers() = nested;
    nested = outer;
  }
  v1::ModelSpec deep;
  *deep.add_layers() = nested;
  deep.add_layers()->mutable_flatten();
  EXPECT_TRUE(BuildModel(deep, {1, 1, 3}, 3).ok());
  v1::LayerSpec deeper;
  *deeper.mutable_residual()->add_layers() = nested;
  *deep.mutable_layers(0) = deeper;
  EXPECT_THAT(BuildModel(deep, {1, 1, 3}, 3),
              IsInvalidArgument(HasSubstr("nested residual blocks")));
}

}  // namespace
}  // namespace muster::nn
