#include "trainer/graph/cut.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/testing/graphs.h"
#include "trainer/models/model.h"

namespace muster::nn {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> CutNames(const Graph& graph) {
  std::vector<std::string> names;
  for (const NodeId node : CutPoints(graph)) names.push_back(graph.nodes[node].name);
  return names;
}

std::vector<std::string> InputNames(const Graph& stage) {
  std::vector<std::string> names;
  for (const EarlierValue& value : stage.inputs) names.push_back(value.name);
  return names;
}

Graph Resnet18() {
  v1::ModelSpec spec;
  spec.set_name("resnet18");
  return *BuildModel(spec, {32, 32, 3}, 10);
}

// A chain of the layers.
Graph ChainOf(std::vector<std::pair<std::string, Layer>> layers) {
  Graph graph{{8, 8, 3}, {}};
  NodeId last = kInput;
  for (auto& [name, layer] : layers) last = graph.Add(name, layer, {last});
  return graph;
}

TEST(CutPointsTest, LieBetweenOperations) {
  EXPECT_THAT(CutNames(ChainOf({{"conv1", Conv2d{4}},
                                {"relu1", Relu{}},
                                {"conv2", Conv2d{4}},
                                {"bn2", BatchNorm2d{}},
                                {"relu2", Relu{}},
                                {"pool2", MaxPool2d{}},
                                {"bn3", BatchNorm2d{}},
                                {"relu3", Relu{}},
                                {"pool3", MaxPool2d{.kernel = 3, .stride = 1}},
                                {"conv4", Conv2d{4}},
                                {"relu4", Relu{}},
                                {"pool4", MaxPool2d{}},
                                {"flatten", Flatten{}},
                                {"dropout", Dropout{0.5}},
                                {"fc", Linear{10}}})),
              ElementsAre("conv2", "bn2", "bn3", "pool3", "conv4", "relu4", "dropout", "fc"));
}

// Every cut lies between operations of the whole model's plan, and every operation begins at a cut
// point, except for the reasons that the other tests cover.
TEST(CutPointsTest, MatchTheBeginningsOfPlanOperations) {
  const Graph graph = Resnet18();
  const auto plan = Compile(graph, {.max_batch = 1});
  ASSERT_TRUE(plan.ok()) << plan.status();
  std::set<NodeId> begins;
  std::set<NodeId> inside;
  for (const OperationDescription& operation : (*plan)->Describe()) {
    begins.insert(operation.first_node);
    EXPECT_EQ(graph.nodes[operation.first_node].name,
              operation.name.substr(0, operation.name.find("..")));
    for (NodeId node = operation.first_node + 1; node <= operation.last_node; ++node) {
      inside.insert(node);
    }
  }
  std::vector<NodeId> expected;
  for (const NodeId node : begins) {
    if (node != 0 && inside.count(node) == 0) expected.push_back(node);
  }
  EXPECT_EQ(CutPoints(graph), expected);
}

TEST(CutPointsTest, LieInResidualBlocksButNotBetweenBranchAndSum) {
  EXPECT_THAT(CutNames(SmallResNet()),
              ElementsAre("bn1", "maxpool", "layer1.0.conv1", "layer1.0.bn1", "layer1.0.conv2",
                          "layer1.0.bn2", "layer2.0.conv1", "layer2.0.bn1", "layer2.0.conv2",
                          "layer2.0.bn2", "avgpool", "fc"));
}

TEST(CutPointsTest, DoNotLieInABranchUnderStochasticDepth) {
  EXPECT_THAT(CutNames(SmallResNet(0.4)),
              ElementsAre("bn1", "maxpool", "layer1.0.conv1", "layer2.0.conv1", "avgpool", "fc"));
  // Stochastic depth that never drops the branch does not matter.
  Graph kept = SmallResNet(0.4);
  for (Node& node : kept.nodes) {
    if (auto* depth = std::get_if<StochasticDepth>(&node.layer)) depth->probability = 0;
  }
  EXPECT_EQ(CutNames(kept), CutNames(SmallResNet()));
}

TEST(CutPointsTest, LieAfterAllLayersThatNeedTheBatch) {
  Graph graph{{8, 8, 3}, {}};
  const NodeId conv = graph.Add("conv", Conv2d{3}, {kInput});
  const NodeId flat = graph.Add("flatten", Flatten{}, {conv});
  const NodeId batch = graph.Add("flatten_batch", Flatten{}, {kInput});
  const NodeId sum = graph.Add("add", Add{}, {flat, batch});
  graph.Add("fc", Linear{10}, {sum});
  EXPECT_THAT(CutNames(graph), ElementsAre("fc"));
}

TEST(CutPointsTest, LieAfterTheFirstParameters) {
  EXPECT_THAT(CutNames(ChainOf({{"pool", MaxPool2d{}},
                                {"relu", Relu{}},
                                {"flatten", Flatten{}},
                                {"fc1", Linear{10}},
                                {"fc2", Linear{10}}})),
              ElementsAre("fc2"));
  EXPECT_THAT(CutNames(ChainOf({{"flatten", Flatten{}}, {"fc", Linear{10}}})), IsEmpty());
}

TEST(CutPointsTest, DoNotLieWhereOneValueWouldCrossUnderTwoNames) {
  Graph graph{{8, 8, 3}, {}};
  const NodeId conv = graph.Add("conv", Conv2d{3}, {kInput});
  const NodeId flat = graph.Add("flatten", Flatten{}, {conv});
  const NodeId fc = graph.Add("fc", Linear{3 * 64}, {flat});
  const NodeId second = graph.Add("conv2", Conv2d{3}, {conv});
  const NodeId flat2 = graph.Add("flatten2", Flatten{}, {second});
  const NodeId sum = graph.Add("add", Add{}, {fc, flat2});
  const NodeId sum2 = graph.Add("add2", Add{}, {sum, flat});
  graph.Add("fc2", Linear{10}, {sum2});
  EXPECT_THAT(CutNames(graph), ElementsAre("add", "add2", "fc2"));
}

TEST(FindCutPointTest, AcceptsNamesOfLayersAndOperations) {
  const Graph graph = SmallResNet();
  for (const std::string name : {"maxpool", "layer1.0.bn1", "bn1..relu"}) {
    const auto point = FindCutPoint(graph, name);
    ASSERT_TRUE(point.ok()) << point.status();
    EXPECT_EQ(graph.nodes[*point].name, name.substr(0, name.find("..")));
  }
}

TEST(FindCutPointTest, ReportsTheNearestCutPoints) {
  const Graph graph = SmallResNet();
  const auto message = [&](const std::string& name) {
    const auto point = FindCutPoint(graph, name);
    EXPECT_EQ(point.status().code(), absl::StatusCode::kInvalidArgument) << name;
    return std::string(point.status().message());
  };
  EXPECT_THAT(message("layer1.0.con2"),
              AllOf(HasSubstr("layer1.0.con2"), HasSubstr("did you mean 'layer1.0.conv2'?")));
  EXPECT_THAT(message("bn1..nothing"), HasSubstr("did you mean"));
  EXPECT_THAT(message("layer1.0.add"),
              AllOf(HasSubstr("layer1.0.bn2 (before)"), HasSubstr("layer2.0.conv1 (after)")));
  EXPECT_THAT(message("conv1"), AllOf(HasSubstr("bn1 (after)"), Not(HasSubstr("before"))));
  EXPECT_THAT(
      FindCutPoint(ChainOf({{"flatten", Flatten{}}, {"fc", Linear{10}}}), "fc").status().message(),
      HasSubstr("has no cut point"));
}

TEST(CutGraphTest, PassesValuesOnToLaterStages) {
  const Graph graph = SmallResNet();
  const auto at = [&](const std::string& name) { return *FindCutPoint(graph, name); };
  const auto first = CutGraph(graph, 0, at("layer1.0.bn1"));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_THAT(first->inputs, IsEmpty());
  EXPECT_EQ(first->outputs.size(), 2u);
  const auto second = CutGraph(graph, at("layer1.0.bn1"), at("layer1.0.bn2"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_THAT(InputNames(*second), ElementsAre("maxpool", "layer1.0.conv1"));
  EXPECT_EQ(second->first_node, at("layer1.0.bn1"));
  EXPECT_EQ(second->nodes.front().inputs[0], EarlierValueId(1));
  EXPECT_EQ(second->outputs.front(), EarlierValueId(0)) << "the shortcut passes through";
  const auto third = CutGraph(graph, at("layer1.0.bn2"), static_cast<NodeId>(graph.nodes.size()));
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_THAT(InputNames(*third), ElementsAre("maxpool", "layer1.0.conv2"));
  EXPECT_THAT(third->outputs, IsEmpty());
}

TEST(CutGraphTest, RejectsInvalidRanges) {
  const Graph graph = SmallResNet();
  const NodeId end = static_cast<NodeId>(graph.nodes.size());
  const NodeId point = CutPoints(graph)[2];
  const auto code = [](const Graph& from, NodeId begin, NodeId end) {
    return CutGraph(from, begin, end).status().code();
  };
  for (const auto& [begin, until] : std::vector<std::pair<NodeId, NodeId>>{
           {0, 2}, {-1, end}, {0, end + 1}, {point, point}, {point, 0}, {2, end}}) {
    EXPECT_EQ(code(graph, begin, until), absl::StatusCode::kInvalidArgument) << begin;
  }
  EXPECT_EQ(code(Graph{{8, 8, 3}, {}}, 0, 0), absl::StatusCode::kInvalidArgument);
  const Graph stage = *CutGraph(graph, point, end);
  EXPECT_EQ(code(stage, 0, 3), absl::StatusCode::kInvalidArgument);
  const auto whole = CutGraph(graph, 0, end);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->nodes.size(), graph.nodes.size());
}

}  // namespace
}  // namespace muster::nn
